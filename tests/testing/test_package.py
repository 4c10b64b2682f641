import subprocess
import sys

import pytest


@pytest.mark.parametrize("before", ["", "import turnkit_django.testing.model_server", "import turnkit_django.testing"])
def test_the_package_gives_the_function_named_like_its_module(before):
    """In a new process: what was imported earlier decides what a package's attribute is."""
    program = f"{before}\nfrom turnkit_django.testing import model_server\nassert callable(model_server), model_server"
    subprocess.run([sys.executable, "-c", program], check=True)
