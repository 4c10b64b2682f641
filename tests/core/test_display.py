import pytest

from turnkit_django.core.display import harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with a\nnew line and\ta tab", "plain, with a\nnew line and\ta tab"),
        ("invoice\u202efdp.exe", "invoice[U+202E]fdp.exe"),
        ("\u2066isolated\u2069", "[U+2066]isolated[U+2069]"),
        ("a\x00b\x1b[31mred", "a[U+0000]b[U+001B][31mred"),
        ("hid\U000e0041den", "hid[U+E0041]den"),
        ("zero\u200bwidth\ufeff", "zero[U+200B]width[U+FEFF]"),
        ("windows\r\nline, lone\rreturn", "windows\nline, lone[U+000D]return"),
        ("👩\u200d🚒 \u0645\u06cc\u200c\u062e\u200f!", "👩\u200d🚒 \u0645\u06cc\u200c\u062e\u200f!"),
        ("<b>&", "<b>&"),
    ],
)
def test_what_cannot_be_seen_is_written_out_and_languages_keep_what_they_need(text, shown):
    assert harmless(text) == shown


def test_a_long_text_is_cut_before_it_is_written_out_and_says_so():
    assert harmless("\u202e" * 3_000_000, limit=3) == "[U+202E][U+202E][U+202E]… [cut: 3 of 3,000,000 characters]"
    assert harmless("abc", limit=3) == "abc"
