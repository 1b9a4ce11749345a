"""All stacks of one environment, and their connections."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

from constructs import Construct

from millrace.config.aws.resource_names import Names
from millrace.sizing.alarms.alarms import alarm_names_silenced_by_stop
from millrace.sizing.costs.endpoints_or_nat_gateways import needs_private_history_image
from millrace.sizing.environment_with_plan_choices import environment_as_planned
from millrace.sizing.plan_model import Plan

from . import engines
from .constructs.alarms import add_alarms, alarm_name
from .constructs.lake_formation_grants import add_lake_formation_grants
from .constructs.state_machine import JobStateMachine
from .permissions.company_rules import apply_company_rules
from .stacks.history_server import HistoryServerStack
from .stacks.history_server_image import HistoryServerImageStack
from .stacks.job_base import JobStack, SharedStacks
from .stacks.kafka import KafkaStack, owned_topics
from .stacks.network import NetworkStack
from .stacks.observability import ObservabilityStack
from .stacks.state_machine_shared_resources import StateMachineResourcesStack
from .stacks.storage import StorageStack
from .stacks.streams import StreamsStack, owned_streams


def build_stacks(app: Construct, *, names: Names, plan: Plan, root: Path) -> None:
    """Add an environment's stacks to an app.

    Parameters
    ----------
    names
        The deployed names, with the environment and the account.
    root
        The project, whose ``pipelines/`` are deployed with the jobs beside the core.

    Raises
    ------
    InfrastructureError
        Something that the environment asks for cannot be built.
    """
    environment = environment_as_planned(names.environment, plan)
    names = Names(environment, names.account)
    storage = StorageStack(app, names=names)
    network = None
    if plan.network.egress.value != "none":
        network = NetworkStack(app, names=names, plan=plan.network, logs_key=storage.logs_key)
    streams = StreamsStack(app, names=names, plan=plan) if owned_streams(environment) else None
    kafka = None
    if environment.created_clusters or owned_topics(environment):
        assert network is not None, "brokers are in a VPC"
        kafka = KafkaStack(
            app,
            names=names,
            plan=plan,
            vpc=network.vpc,
            subnets=network.subnets,
            workers=network.workers,
            logs_key=storage.logs_key,
        )
    lifecycle = StateMachineResourcesStack(app, names=names)
    observability = ObservabilityStack(
        app, names=names, plan=plan, alerts=lifecycle.alerts, logs_key=storage.logs_key
    )
    foundation = SharedStacks(
        storage=storage,
        network=network,
        observability=observability,
        streams_key=None if streams is None else streams.key,
    )
    if environment.history is not None:
        assert network is not None, "the history server is in a VPC"
        private = needs_private_history_image(environment, plan.network)
        image = HistoryServerImageStack(app, names=names) if private else None
        history = HistoryServerStack(
            app,
            names=names,
            settings=environment.history,
            storage=storage,
            network=network,
            cached=None if image is None else image.image,
        )
        if image is not None:
            history.add_stack_dependency(image, reason="tasks find an image")
    for name, job in environment.jobs.items():
        kind: type[JobStack] = resolve_name(engines.deployed_engine(job.engine).stack)
        stack = kind(app, names=names, plan=plan.jobs[name], foundation=foundation, root=root)
        for source in (streams, kafka):
            if source is not None:
                stack.add_stack_dependency(source, reason="a job that starts finds its sources")
        if environment.observability.alarms == "by-job":
            own = [each for each in plan.alarms if each.subject == f"job/{name}"]
            add_alarms(stack, names, own, topic=lifecycle.alerts.topic_arn)
            for each in observability.all_stacks:
                stack.add_stack_dependency(
                    each, reason="an alarm leaves one stack before it is made in another"
                )
        if environment.storage.lake_formation != "off":
            add_lake_formation_grants(stack)
        silenced = alarm_names_silenced_by_stop(plan.alarms, name)
        runs = stack.engine_run_calls()
        if runs is not None:
            JobStateMachine(
                stack,
                runs,
                plan=plan.jobs[name],
                silenced=[alarm_name(names, alarm) for alarm in plan.alarms if alarm.name in silenced],
                alerts=lifecycle.alerts,
                key=lifecycle.key,
            )
    apply_company_rules(app, environment)
