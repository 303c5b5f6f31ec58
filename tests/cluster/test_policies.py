"""The policies in jobs/iam/ allow what our code asks of S3, and nothing that it does not."""

from __future__ import annotations

import ast
import fnmatch
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cluster_files import ROOT, cluster_config

POLICIES = ROOT / "jobs" / "iam"
PACKAGE = ROOT / "platform" / "vsetune"

ACTIONS = {
    "get_object": {"s3:GetObject"}, "head_object": {"s3:GetObject", "s3:ListBucket"}, "head_bucket": {"s3:ListBucket"},
    "download_file": {"s3:GetObject"}, "download_fileobj": {"s3:GetObject"},
    "put_object": {"s3:PutObject"}, "copy_object": {"s3:GetObject", "s3:PutObject"},
    "upload_file": {"s3:PutObject", "s3:AbortMultipartUpload"},
    "upload_fileobj": {"s3:PutObject", "s3:AbortMultipartUpload"},
    "delete_object": {"s3:DeleteObject"}, "delete_objects": {"s3:DeleteObject"},
    "list_objects": {"s3:ListBucket"}, "list_objects_v2": {"s3:ListBucket"},
    "create_multipart_upload": {"s3:PutObject"}, "upload_part": {"s3:PutObject"},
    "upload_part_copy": {"s3:GetObject", "s3:PutObject"}, "complete_multipart_upload": {"s3:PutObject"},
    "abort_multipart_upload": {"s3:AbortMultipartUpload"}, "list_parts": {"s3:ListMultipartUploadParts"},
    "list_multipart_uploads": {"s3:ListBucketMultipartUploads"},
}
"""What AWS asks a role for before it answers a call. An object that is not there is told as missing (404) only to those
who may list the bucket, as refused (403) to others; hence ListBucket for head_object."""

TRANSFERS = {"upload_file", "upload_fileobj", "download_file", "download_fileobj"}


@cache
def calls_of_s3() -> frozenset[str]:
    """Every method of an S3 client: those of its API, and boto3's transfers."""
    from botocore import xform_name
    from botocore.session import get_session

    model = get_session().get_service_model("s3")
    return frozenset({xform_name(name) for name in model.operation_names} | TRANSFERS)


def s3_calls(text: str) -> Iterator[str]:
    """The calls of S3 that Python code makes, also by name, as in get_paginator("list_objects_v2")."""
    for node in ast.walk(ast.parse(text)):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
        if isinstance(name, str) and name in calls_of_s3():
            yield name


def our_calls() -> dict[str, str]:
    """Call: a file of ours that makes it."""
    files = sorted((PACKAGE / "home").glob("*.py"))
    return {call: path.name for path in files for call in s3_calls(path.read_text(encoding="utf-8"))}


def policy(name: str) -> list[dict[str, Any]]:
    return list(json.loads((POLICIES / f"{name}.json").read_text(encoding="utf-8"))["Statement"])


def allowed(name: str) -> set[str]:
    found = [statement["Action"] for statement in policy(name) if statement["Effect"] == "Allow"]
    return {action for each in found for action in ([each] if isinstance(each, str) else each)}


def missing_actions(calls: dict[str, str]) -> list[str]:
    """What the policy lacks for these calls; a call whose actions nobody has written down is missing as well."""
    found = [f"{call} in {file}: add its actions to ACTIONS" for call, file in calls.items() if call not in ACTIONS]
    granted = allowed("storage_policy")
    return found + [
        f"{call} in {file}: storage_policy.json does not allow {action}"
        for call, file in calls.items() for action in sorted(ACTIONS.get(call, set()) - granted)
    ]


def test_every_call_that_our_code_makes_of_s3_is_allowed() -> None:
    assert {"get_object", "head_object", "upload_fileobj"} <= set(our_calls())
    assert missing_actions(our_calls()) == []


def test_storage_may_be_read_and_written_below_the_home_alone() -> None:
    assert allowed("storage_policy") <= {action for actions in ACTIONS.values() for action in actions}
    for statement in policy("storage_policy"):
        of_objects = [action for action in statement["Action"] if not action.startswith("s3:ListBucket")]
        assert statement["Resource"] == ("arn:aws:s3:::BUCKET/vsetune/*" if of_objects else "arn:aws:s3:::BUCKET")


def test_the_home_of_the_policy_is_that_of_the_cluster() -> None:
    assert any("VSETUNE_HOME=s3://BUCKET/vsetune" in option for option in cluster_config()["docker"]["run_options"])


@pytest.mark.parametrize("path", sorted(POLICIES.glob("*.json")), ids=lambda path: path.stem)
def test_no_policy_allows_everything(path: Path) -> None:
    for statement in policy(path.stem):
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        assert not any("*" in action for action in actions)
        is_wide = statement.get("Resource") == "*"
        assert not is_wide or "Condition" in statement or all(fnmatch.fnmatch(one, "ec2:Describe*") for one in actions)


def test_the_head_may_start_workers_with_their_role_and_end_its_own_alone() -> None:
    by_action = {
        action: statement for statement in policy("head_policy")
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    config = cluster_config()
    worker = config["available_node_types"]["cpu"]["node_config"]["IamInstanceProfile"]["Name"]
    assert by_action["iam:PassRole"]["Resource"].endswith(f":role/{worker}")
    ended = by_action["ec2:TerminateInstances"]["Condition"]["StringEquals"]
    assert ended == {"ec2:ResourceTag/ray-cluster-name": config["cluster_name"]}
    assert by_action["ec2:RunInstances"]["Condition"]["StringEquals"] == {
        "aws:RequestedRegion": config["provider"]["region"]
    }
