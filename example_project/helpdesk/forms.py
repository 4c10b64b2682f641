from __future__ import annotations

from django import forms

LONGEST_TEXT = 4000


class MessageForm(forms.Form):
    """What a customer writes, in a new ticket or in an open one.

    The page makes a new `key` each time it is shown: a form that is sent twice does its work once.
    """

    text = forms.CharField(
        label="Your message",
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 5}),
        error_messages={
            "required": "Please write something.",
            "max_length": "This is too long: please use at most %(limit_value)d characters, it has %(show_value)d.",
        },
    )
    key = forms.UUIDField(
        error_messages={"required": "Please send the form again.", "invalid": "Please send the form again."}
    )

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        return text.replace("\r\n", "\n")
