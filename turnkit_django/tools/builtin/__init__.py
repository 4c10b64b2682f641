"""Tools that coordinate agents. They are opt-in: list those that an agent may use in its `tools`."""

from turnkit_django.tools.builtin.coordination import LaunchAgent as LaunchAgent
from turnkit_django.tools.builtin.coordination import SendMessage as SendMessage
from turnkit_django.tools.builtin.coordination import WaitFor as WaitFor
from turnkit_django.tools.builtin.delegation import SubAgentTool as SubAgentTool
