"""What a nightly file may say of its report: no secrets, no mail heads, no markup in links."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from vsetune.nightly.nightly_spec import ReportSpec


def test_a_report_is_kept_in_mlflow_and_told_when_something_is_wrong_unless_the_file_says_otherwise() -> None:
    spec = ReportSpec()
    assert (spec.mlflow, spec.notify, spec.webhook, spec.mail_to) == (True, "regressions", None, [])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"webhook": "https://hooks.example.org/verysecret"}, "got an address, need the name of an environment"),
        ({"webhook": "MY HOOK"}, "got 'MY HOOK', need the name of an environment variable"),
        ({"mail_to": ["a@example.org\nBcc: b@example.org"]}, "need one mail address"),
        ({"mail_to": ["a@example.org, b@example.org"]}, "need one mail address"),
        ({"mail_to": ["Team <a@example.org>"]}, "need one mail address"),
        ({"page_url": "javascript:alert(1)"}, "need an address that begins with https:// or http://"),
        ({"page_url": "https://example.org/|x>"}, "without blanks, quotes, < > or |"),
        ({"notify": "sometimes"}, "'regressions', 'always' or 'never'"),
        ({"slack": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ReportSpec.model_validate(given)
    (problem,) = caught.value.errors(include_input=False)
    assert told in problem["msg"]
    assert "verysecret" not in problem["msg"]
