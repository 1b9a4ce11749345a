"""Spark's history server: Fargate behind an internal load balancer, over the logs of both engines."""

from __future__ import annotations

from aws_cdk import CfnOutput, Duration, SecretValue
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elb
from constructs import Construct

from millrace.config.aws.foreign_accounts_and_hosts import ports_of_urls
from millrace.config.aws.iam_statements import FILES, NO_NARROWER, Grant, allow, allow_listing_prefixes
from millrace.config.aws.resource_names import Names
from millrace.config.network_storage_governance_observability import HistoryServer, SignIn

from ..accept_finding import accept_finding_at_construct
from ..constructs.event_log_copier import FLAT_PREFIX, EventLogCopier
from ..constructs.history_image_pull_through_cache import PUBLIC_URI, PullThroughCachedImage
from ..constructs.job_role import JobRole
from ..constructs.log_groups import EncryptedLogGroup
from .base import EnvironmentStack
from .network import HTTPS, NetworkStack
from .storage import StorageStack

PORT = 18080
_HTTP = 80
_WORK = "/history"
_HEAP_SHARE = 0.75
"""The heap's share of the task's memory; the rest is for threads, mapped files and the store's own buffers."""

_MIB_PER_GIB = 1024

S3_JARS = (
    "/usr/lib/hadoop/hadoop-aws.jar",
    "/usr/share/aws/aws-java-sdk/*",
    "/usr/share/aws/aws-java-sdk-v2/*",
)
"""Jars of EMR's images that read S3, outside Spark's folder; a path that does not exist does no harm."""

START = f"""\
home="${{SPARK_HOME:-/usr/lib/spark}}"
defaults="${{SPARK_CONF_DIR:-$home/conf}}/spark-defaults.conf"
named=$(sed -n 's/^spark[.]driver[.]extraClassPath[[:space:]=:]*//p' "$defaults" 2>/dev/null | tail -n 1)
export SPARK_DAEMON_CLASSPATH="${{SPARK_DAEMON_CLASSPATH:+$SPARK_DAEMON_CLASSPATH:}}${{named:+$named:}}{":".join(S3_JARS)}"
exec "$home/bin/spark-class" org.apache.spark.deploy.history.HistoryServer"""
"""A daemon does not read ``spark.driver.extraClassPath``, with which an image gives drivers its jars for S3. It reads
``SPARK_DAEMON_CLASSPATH`` (Spark's ``SparkClassCommandBuilder``), at the same place of the class path.
"""


class HistoryServerStack(EnvironmentStack):
    """The server, its load balancer, and the copies of logs under one prefix.

    Event logs reveal much about jobs and their settings: the server is reachable from inside
    only, reads only the flat prefix, and writes only to scratch space.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        names: Names,
        settings: HistoryServer,
        storage: StorageStack,
        network: NetworkStack,
        cached: PullThroughCachedImage | None,
    ) -> None:
        super().__init__(
            scope,
            names=names,
            part="history",
            stateful=False,
            description=f"Spark history server of {names.prefix}",
        )
        self._settings, self._storage, self._network = settings, storage, network
        self._cached = cached
        EventLogCopier(self, "EventLogs", names=names, key=storage.logs_key)
        service = self._add_fargate_service()
        balancer = self._add_load_balancer(service)
        scheme = "http" if settings.certificate is None else "https"
        CfnOutput(self, "Url", value=f"{scheme}://{balancer.load_balancer_dns_name}")

    def _add_fargate_service(self) -> ecs.FargateService:
        names, settings = self.names, self._settings
        cluster = ecs.Cluster(
            self, "Cluster", vpc=self._network.vpc, container_insights_v2=ecs.ContainerInsights.ENABLED
        )
        image, pull = self._image_and_pull_grants()
        log_group = EncryptedLogGroup(
            self,
            "Logs",
            environment=names.environment,
            name=f"/{names.prefix}/history",
            key=self._storage.logs_key,
        )
        task = ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=settings.vcpu * 1024,
            memory_limit_mib=settings.memory_gib * _MIB_PER_GIB,
            task_role=self._add_task_role("TaskRole", "Reads event logs", self._read_log_grants()),
            execution_role=self._add_task_role(
                "ExecutionRole",
                "Pulls the image, writes logs",
                [
                    *pull,
                    allow(
                        "WriteLogs",
                        ["logs:CreateLogStream", "logs:PutLogEvents"],
                        [log_group.log_group_arn],
                    ),
                ],
            ).without_policy_updates(),
            volumes=[ecs.Volume(name="work")],
        )
        logging = ecs.LogDriver.aws_logs(stream_prefix="history", log_group=log_group)
        mount = ecs.MountPoint(container_path=_WORK, source_volume="work", read_only=False)
        # The volume belongs to root; the server runs as the user of its image.
        prepare = task.add_container(
            "Prepare",
            image=image,
            essential=False,
            user="0",
            readonly_root_filesystem=True,
            entry_point=["/bin/sh", "-c"],
            command=[f"chmod 1777 {_WORK}"],
            logging=logging,
        )
        prepare.add_mount_points(mount)
        server = task.add_container(
            "Server",
            image=image,
            readonly_root_filesystem=True,
            entry_point=["/bin/sh", "-c"],
            command=[START],
            environment=self._container_environment(),
            port_mappings=[ecs.PortMapping(container_port=PORT)],
            stop_timeout=Duration.seconds(30),
            logging=logging,
        )
        server.add_mount_points(mount)
        server.add_container_dependencies(
            ecs.ContainerDependency(container=prepare, condition=ecs.ContainerDependencyCondition.SUCCESS)
        )
        accept_finding_at_construct(
            task,
            "Annotation::@aws-cdk/aws-ecs:ecrImageRequiresPolicy",
            "The execution role may pull from this one repository; its statement is written here",
        )
        accept_finding_at_construct(
            task,
            "AwsSolutions-ECS2",
            "Where the logs are and how much memory there is: no secret among the variables",
        )
        return ecs.FargateService(
            self,
            "Service",
            cluster=cluster,
            task_definition=task,
            desired_count=1,
            # One server is enough; during its replacement there may be none for a minute.
            min_healthy_percent=0,
            max_healthy_percent=100,
            assign_public_ip=False,
            vpc_subnets=ec2.SubnetSelection(subnets=list(self._network.subnets)),
            security_groups=[self._add_task_security_group()],
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            # The first replay of a long log takes long.
            health_check_grace_period=Duration.minutes(5),
        )

    def _container_environment(self) -> dict[str, str]:
        names = self.names
        retention = names.environment.storage.event_log_retention
        options = {
            "spark.history.fs.logDirectory": f"s3a://{names.bucket('event-logs')}/{FLAT_PREFIX}/",
            "spark.history.fs.update.interval": "30s",
            # The bucket's own rule deletes logs of this age; the cleaner drops them from its list and frees the
            # store. It never has to delete an object, which its role does not allow.
            "spark.history.fs.cleaner.enabled": "true",
            "spark.history.fs.cleaner.interval": "1d",
            "spark.history.fs.cleaner.maxAge": f"{retention.days + 1}d",
            "spark.history.store.path": f"{_WORK}/store",
            "spark.history.store.maxDiskUsage": "10g",
            "spark.history.ui.port": str(PORT),
            "spark.hadoop.fs.s3a.endpoint.region": names.environment.region,
            "java.io.tmpdir": _WORK,
        }
        heap = int(self._settings.memory_gib * _MIB_PER_GIB * _HEAP_SHARE)
        return {
            "SPARK_DAEMON_MEMORY": f"{heap}m",
            "SPARK_HISTORY_OPTS": " ".join(f"-D{key}={value}" for key, value in options.items()),
            "SPARK_LOG_DIR": f"{_WORK}/logs",
        }

    def _image_and_pull_grants(self) -> tuple[ecs.ContainerImage, list[Grant]]:
        """Return the image, by its address, and the grants to pull it; CDK would add wider statements."""
        image, cached = self._settings.image, self._cached
        if image is not None:
            # 111122223333.dkr.ecr.us-east-1.amazonaws.com/team/spark:3.5.6
            registry, path = image.split("/", 1)
            account, region = registry.split(".")[0], registry.split(".")[3]
            name = path.split("@")[0].split(":")[0]
            arn = f"arn:{self.names.aws_partition}:ecr:{region}:{account}:repository/{name}"
            return ecs.ContainerImage.from_registry(image), _image_pull_grants(arn)
        if cached is None:
            return ecs.ContainerImage.from_registry(PUBLIC_URI), []
        # In a network with internet access the first task makes the first pull.
        fill = allow("FillCache", ["ecr:BatchImportUpstreamImage"], [cached.repository_arn])
        return ecs.ContainerImage.from_registry(cached.uri), [
            *_image_pull_grants(cached.repository_arn),
            fill,
        ]

    def _add_task_role(self, construct_id: str, does: str, grants: list[Grant]) -> JobRole:
        names = self.names
        return JobRole(
            self,
            construct_id,
            service="ecs-tasks.amazonaws.com",
            account=names.account,
            source_arn=f"arn:{names.aws_partition}:ecs:{names.environment.region}:{names.account}:*",
            description=f"{does}: history server of {names.prefix}",
            grants=grants,
        )

    def _read_log_grants(self) -> list[Grant]:
        bucket = self.names.bucket_arn("event-logs")
        return [
            allow("ReadLogs", ["s3:GetObject"], [f"{bucket}/{FLAT_PREFIX}/*"], why=FILES),
            allow_listing_prefixes("ListLogs", bucket, [FLAT_PREFIX]),
            allow("Decrypt", ["kms:Decrypt"], [self._storage.logs_key.key_arn]),
        ]

    def _add_task_security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "TaskGroup",
            vpc=self._network.vpc,
            description=f"History server of {self.names.prefix}",
            allow_all_outbound=False,
        )
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "AWS services")
        endpoints = self._network.endpoints
        if endpoints is not None:
            # The rule is here and not at the group: a permanent stack refers to none that may be deleted.
            ec2.CfnSecurityGroupIngress(
                self,
                "ToEndpoints",
                group_id=endpoints.security_group_id,
                source_security_group_id=group.security_group_id,
                ip_protocol="tcp",
                from_port=HTTPS,
                to_port=HTTPS,
                description="History server",
            )
        self._tasks = group
        return group

    def _add_load_balancer(self, service: ecs.FargateService) -> elb.ApplicationLoadBalancer:
        names, settings = self.names, self._settings
        certificate = settings.certificate
        group = ec2.SecurityGroup(
            self,
            "BalancerGroup",
            vpc=self._network.vpc,
            description=f"Load balancer of the history server of {names.prefix}",
            allow_all_outbound=False,
        )
        group.add_egress_rule(self._tasks, ec2.Port.tcp(PORT), "History server")
        self._tasks.add_ingress_rule(group, ec2.Port.tcp(PORT), "Load balancer")
        if settings.sign_in is not None:
            # The balancer itself asks the identity provider.
            for port in ports_of_urls(
                f"{settings.sign_in.token_endpoint} {settings.sign_in.user_info_endpoint}"
            ):
                group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "Identity provider")
        for cidr in settings.clients:
            group.add_ingress_rule(
                ec2.Peer.ipv4(cidr), ec2.Port.tcp(_HTTP if certificate is None else HTTPS), "People"
            )
        balancer = elb.ApplicationLoadBalancer(
            self,
            "Balancer",
            vpc=self._network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=list(self._network.subnets)),
            internet_facing=False,
            security_group=group,
            drop_invalid_header_fields=True,
            deletion_protection=names.environment.removal != "destroy",
        )
        balancer.log_access_logs(self._storage.access_logs, f"history/{names.prefix}")
        listener = balancer.add_listener(
            "Listener",
            port=_HTTP if certificate is None else HTTPS,
            protocol=elb.ApplicationProtocol.HTTP if certificate is None else elb.ApplicationProtocol.HTTPS,
            certificates=[] if certificate is None else [elb.ListenerCertificate.from_arn(certificate)],
            ssl_policy=None if certificate is None else elb.SslPolicy.TLS13_RES,
            open=False,
        )
        target = elb.ApplicationTargetGroup(
            listener,
            "ServerGroup",
            vpc=self._network.vpc,
            port=PORT,
            protocol=elb.ApplicationProtocol.HTTP,
            targets=[service],
            deregistration_delay=Duration.seconds(10),
            health_check=elb.HealthCheck(
                path="/api/v1/version", interval=Duration.seconds(30), healthy_http_codes="200"
            ),
        )
        forward = elb.ListenerAction.forward([target])
        listener.add_action(
            "Open",
            action=forward if settings.sign_in is None else _action_after_sign_in(settings.sign_in, forward),
        )
        return balancer


def _action_after_sign_in(settings: SignIn, then: elb.ListenerAction) -> elb.ListenerAction:
    """Let only signed-in users through; CloudFormation reads the secret, so no template contains it."""
    return elb.ListenerAction.authenticate_oidc(
        issuer=settings.issuer,
        authorization_endpoint=settings.authorization_endpoint,
        token_endpoint=settings.token_endpoint,
        user_info_endpoint=settings.user_info_endpoint,
        client_id=settings.client_id,
        client_secret=SecretValue.secrets_manager(settings.secret, json_field="client_secret"),
        scope=settings.scope,
        session_timeout=Duration.seconds(int(settings.session.total_seconds())),
        on_unauthenticated_request=elb.UnauthenticatedAction.AUTHENTICATE,
        allow_https_outbound=False,  # the balancer's group allows it
        next=then,
    )


def _image_pull_grants(repository_arn: str) -> list[Grant]:
    return [
        allow("SignIn", ["ecr:GetAuthorizationToken"], ["*"], why=NO_NARROWER),
        allow(
            "Pull",
            ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            [repository_arn],
        ),
    ]
