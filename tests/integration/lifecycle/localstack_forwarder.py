"""Plug-in of LocalStack that forwards calls of Glue and EMR Serverless to ``ENGINES_URL``.

The open LocalStack has neither service, but reads their requests and knows where they belong.
So state machines, the command line and CDK all find them at LocalStack's own address.
"""

import json
import os

from localstack.aws import handlers
from localstack.services.events import target
from localstack.services.stepfunctions.asl.component.state.state_execution.state_task.service import (
    state_task_service,
    state_task_service_aws_sdk,
)
from rolo.proxy import Proxy

ENGINES = {"glue", "emr-serverless"}

# As Step Functions writes it: in the resource's ARN, and in the names of errors.
overrides = state_task_service.StateTaskService._SERVICE_NAME_SFN_TO_BOTO_OVERRIDES
overrides["emrserverless"] = "emr-serverless"
state_task_service_aws_sdk._SERVICE_ERROR_NAMES["emrserverless"] = "EmrServerless"


def start_execution(self, event, trace_header):
    self.service = "stepfunctions"
    self.client.start_execution(stateMachineArn=self.target["Arn"], input=json.dumps(event))


# LocalStack names an execution by the event's id, which is gone when a rule writes the input itself.
target.StatesTargetSender.send_event = start_execution

proxy = Proxy(forward_base_url=os.environ["ENGINES_URL"], preserve_host=False)


def hand_over(chain, context, response):
    if context.service is not None and context.service.service_name in ENGINES:
        response.update_from(proxy.forward(context.request, forward_path=context.request.path))
        chain.stop()


handlers.serve_custom_service_request_handlers.append(hand_over)
