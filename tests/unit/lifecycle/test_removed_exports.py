"""Before a deployment removes an export, the stacks that import it are deployed or named for deletion, from moto's CloudFormation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from millrace.cli.run.changes_report import change_lines
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.stack_exports import imported_export_names
from millrace.lifecycle.deploy import compare_with_deployed
from tests.unit.lifecycle.deployed_jobs import BUCKET, template
from tests.unit.lifecycle.test_deployed_diff import document


def exporting(*names: str) -> dict[str, Any]:
    return {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": "a"}}},
        "Outputs": {
            name: {"Value": {"Fn::GetAtt": ["Topic", "TopicName"]}, "Export": {"Name": f"network:{name}"}}
            for name in names
        },
    }


def importing(*names: str) -> dict[str, Any]:
    result = template(3, f"s3://{BUCKET}/3.json")
    result["Resources"]["Topic"]["Properties"] |= {
        "Tags": [{"Key": name, "Value": {"Fn::ImportValue": f"network:{name}"}} for name in names]
    }
    return result


class Listing:
    """Moto's CloudFormation with the question that moto does not know: which stacks import an export."""

    def __init__(self, moto: Any) -> None:
        self._moto = moto

    def list_imports(self, **given: str) -> dict[str, list[str]]:
        export = given["ExportName"]
        stacks = [each["StackName"] for each in self._moto.list_stacks()["StackSummaries"]]
        bodies = {name: self._moto.get_template(StackName=name)["TemplateBody"] for name in stacks}
        result = [
            name
            for name, body in bodies.items()
            if export in imported_export_names(json.loads(body) if isinstance(body, str) else body)
        ]
        if not result:
            message = f"Export '{export}' is not imported by any stack."
            raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "ListImports")
        return {"Imports": result}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._moto, name)


def asked(aws: DeployedEnvironment) -> DeployedEnvironment:
    client = aws.client
    return DeployedEnvironment(
        aws.names,
        lambda service: Listing(client(service)) if service == "cloudformation" else client(service),
    )


def deployed(aws: DeployedEnvironment, job: dict[str, Any]) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="3.json", Body=json.dumps(document(3)))
    for stack, body in (("network", exporting("A", "B")), ("job-clicks", job)):
        aws.client("cloudformation").create_stack(
            StackName=f"hello-minimal-{stack}", TemplateBody=json.dumps(body)
        )


def assembly(folder: Path, network: dict[str, Any], job: dict[str, Any]) -> Path:
    for stack, body in (("network", network), ("job-clicks", job)):
        (folder / f"hello-minimal-{stack}.template.json").write_text(json.dumps(body))
    (folder / "asset.3.json").write_text(json.dumps(document(3)))
    return folder


def test_a_stack_that_imports_no_more_what_goes_is_deployed_first(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    deployed(aws, importing("A", "B"))
    result = compare_with_deployed(asked(aws), assembly(tmp_path, exporting("A"), importing("A")))
    assert (result.order.first, result.order.refused) == (("hello-minimal-job-clicks",), ())
    assert "cdk deploy hello-minimal-job-clicks --exclusively" in "\n".join(change_lines(result))


def test_a_stack_that_left_the_file_and_still_imports_is_to_be_destroyed_first(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    deployed(aws, importing("A"))
    body = json.dumps(importing("B"))
    aws.client("cloudformation").create_stack(StackName="hello-minimal-history", TemplateBody=body)
    result = compare_with_deployed(asked(aws), assembly(tmp_path, exporting("A"), importing("A")))
    assert result.order.first == ()
    (line,) = result.order.refused
    assert "`aws cloudformation delete-stack --stack-name hello-minimal-history`" in line


def test_what_nobody_imports_may_go(aws: DeployedEnvironment, tmp_path: Path) -> None:
    deployed(aws, importing("A"))
    result = compare_with_deployed(asked(aws), assembly(tmp_path, exporting("A"), importing("A")))
    assert (result.order.first, result.order.refused) == ((), ())
