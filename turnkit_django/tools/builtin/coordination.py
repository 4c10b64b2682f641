"""Tools by which a model sends messages, launches agents and waits for turns."""

from __future__ import annotations

from turnkit_django.core.effects import Join, Launch, Send
from turnkit_django.tools.tool import Tool


class SendMessage(Tool):
    name = "send_message"
    description = (
        "Send a message to another conversation. Its agent reads it in its next turn; nothing comes back here."
    )
    coordinates = True

    def call(self, conversation_id: str, text: str) -> Send:
        """Send it.

        Args:
            conversation_id: The id of the conversation, such as `conv_...`.
            text: The message.
        """
        return Send(conversation_id, text)


class LaunchAgent(Tool):
    name = "launch_agent"
    description = "Start another agent on a task and go on at once, without waiting for its answer."
    coordinates = True

    def call(self, agent_name: str, task: str, callback: bool = False) -> Launch:  # noqa: FBT001, FBT002 - the model's
        """Launch it.

        Args:
            agent_name: The name of the agent.
            task: Everything the agent needs to know: it sees nothing else of this conversation.
            callback: Whether its result shall come back to this conversation as a message.
        """
        return Launch(agent_name, task, is_detached=True, has_callback=callback)


class WaitFor(Tool):
    name = "wait_for"
    description = "Wait until turns that were launched have ended, and read their results."
    coordinates = True

    def call(self, turn_ids: list[str]) -> Join:
        """Wait for them.

        Args:
            turn_ids: The ids of the turns, such as `turn_...`, each once.
        """
        return Join(tuple(turn_ids))
