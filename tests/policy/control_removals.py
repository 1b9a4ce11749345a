"""Security controls whose loss must be detected, each with the change that removes it."""

from __future__ import annotations

from tests.policy.access_control_removals import HISTORY, NETWORK, PERMISSIONS, STATEMENTS
from tests.policy.template_mutations import Append, Mutation, Put, Remove

BUCKET = "AWS::S3::Bucket"
GLUE = "AWS::Glue::Job"
EMR = "AWS::EMRServerless::Application"
MSK = "AWS::MSK::Cluster"
KEY = "AWS::KMS::Key"
MACHINE = "AWS::StepFunctions::StateMachine"
SECURITY = "AWS::Glue::SecurityConfiguration"

ENCRYPTION = ("Properties", "BucketEncryption", "ServerSideEncryptionConfiguration", 0)
EVERYBODY = {"Effect": "Allow", "Principal": "*", "Resource": "*"}

DATA = (
    BUCKET,
    "AWS::Kinesis::Stream",
    KEY,
    MSK,
    "AWS::MSK::Topic",
    "AWS::Glue::Database",
)

STORAGE = (
    Mutation(
        "bucket: the environment's key", BUCKET, ENCRYPTION[:2], Remove(), ("Lake", "Check", "Dead", "Event")
    ),
    Mutation(
        "bucket: its key replaced by S3's",
        BUCKET,
        (*ENCRYPTION, "ServerSideEncryptionByDefault"),
        Put({"SSEAlgorithm": "AES256"}),
        ("Lake", "Check", "Dead", "Event"),
    ),
    Mutation("bucket: bucket key", BUCKET, (*ENCRYPTION, "BucketKeyEnabled"), Remove()),
    Mutation(
        "bucket: public access block", BUCKET, ("Properties", "PublicAccessBlockConfiguration"), Remove()
    ),
    *(
        Mutation(
            f"bucket: {flag}", BUCKET, ("Properties", "PublicAccessBlockConfiguration", flag), Put(False)
        )
        for flag in ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    ),
    Mutation("bucket: one owner, no access lists", BUCKET, ("Properties", "OwnershipControls"), Remove()),
    Mutation("bucket: versions where data is", BUCKET, ("Properties", "VersioningConfiguration"), Remove()),
    Mutation("bucket: access logs", BUCKET, ("Properties", "LoggingConfiguration"), Remove()),
    Mutation("bucket: lifecycle", BUCKET, ("Properties", "LifecycleConfiguration"), Remove()),
    Mutation(
        "bucket: live data never expires",
        BUCKET,
        ("Properties", "LifecycleConfiguration", "Rules", 0, "ExpirationInDays"),
        Put(30),
        ("Lake", "Checkpoints", "DeadLetters"),
    ),
    Mutation(
        "bucket policy: TLS only",
        "AWS::S3::BucketPolicy",
        (*STATEMENTS, {"Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}),
        Remove(),
    ),
    Mutation(
        "bucket policy: TLS 1.2",
        "AWS::S3::BucketPolicy",
        (*STATEMENTS, {"Effect": "Deny", "Condition": {"NumericLessThan": {}}}),
        Remove(),
    ),
    Mutation(
        "bucket policy: closed to others",
        "AWS::S3::BucketPolicy",
        STATEMENTS,
        Append(EVERYBODY | {"Action": "s3:GetObject"}),
    ),
    Mutation(
        "bucket policy: deliveries of this account only",
        "AWS::S3::BucketPolicy",
        (*STATEMENTS, {"Principal": {"Service": "logging.s3.amazonaws.com"}}, "Condition"),
        Remove(),
    ),
    *(
        Mutation(
            f"data: kept when it leaves its stack ({kind.split('::', 1)[1]})",
            kind,
            ("DeletionPolicy",),
            Put("Delete"),
        )
        for kind in DATA
    ),
    *(
        Mutation(
            f"data: kept when it is replaced ({kind.split('::', 1)[1]})",
            kind,
            ("UpdateReplacePolicy",),
            Put("Delete"),
        )
        for kind in DATA
    ),
)

KEYS_AND_SERVICES = (
    Mutation("key: rotation", KEY, ("Properties", "EnableKeyRotation"), Put(False)),
    Mutation(
        "key: this account's",
        KEY,
        ("Properties", "KeyPolicy", "Statement", 0, "Principal"),
        Put({"AWS": "*"}),
    ),
    Mutation(
        "key: services on behalf of this account only",
        KEY,
        ("Properties", "KeyPolicy", "Statement", {"Condition": {}}, "Condition"),
        Remove(),
    ),
    Mutation("log group: key", "AWS::Logs::LogGroup", ("Properties", "KmsKeyId"), Remove()),
    Mutation("log group: retention", "AWS::Logs::LogGroup", ("Properties", "RetentionInDays"), Remove()),
    Mutation("stream: encryption", "AWS::Kinesis::Stream", ("Properties", "StreamEncryption"), Remove()),
    Mutation(
        "stream: the environment's key",
        "AWS::Kinesis::Stream",
        ("Properties", "StreamEncryption", "KeyId"),
        Put("alias/aws/kinesis"),
    ),
    Mutation("stream: retention", "AWS::Kinesis::Stream", ("Properties", "RetentionPeriodHours"), Remove()),
    Mutation("alerts: key", "AWS::SNS::Topic", ("Properties", "KmsMasterKeyId"), Remove()),
    Mutation("alerts: TLS only", "AWS::SNS::TopicPolicy", (*STATEMENTS, {"Effect": "Deny"}), Remove()),
    Mutation(
        "alerts: alarms of this account only",
        "AWS::SNS::TopicPolicy",
        (*STATEMENTS, {"Effect": "Allow", "Condition": {}}, "Condition"),
        Remove(),
    ),
    Mutation("samples: key", "AWS::APS::Workspace", ("Properties", "KmsKeyArn"), Remove()),
    Mutation("state machine: log", MACHINE, ("Properties", "LoggingConfiguration"), Remove()),
    Mutation(
        "state machine: log of everything",
        MACHINE,
        ("Properties", "LoggingConfiguration", "Level"),
        Put("OFF"),
    ),
    Mutation("state machine: traces", MACHINE, ("Properties", "TracingConfiguration"), Remove()),
    Mutation("state machine: key", MACHINE, ("Properties", "EncryptionConfiguration"), Remove()),
)

_IN_TRANSIT = ("Properties", "EncryptionInfo", "EncryptionInTransit")
KAFKA = (
    Mutation("Kafka: TLS to clients", MSK, (*_IN_TRANSIT, "ClientBroker"), Put("TLS_PLAINTEXT")),
    Mutation("Kafka: TLS among brokers", MSK, (*_IN_TRANSIT, "InCluster"), Put(False)),
    Mutation("Kafka: encryption", MSK, ("Properties", "EncryptionInfo"), Remove()),
    Mutation(
        "Kafka: key of the volumes", MSK, ("Properties", "EncryptionInfo", "EncryptionAtRest"), Remove()
    ),
    Mutation(
        "Kafka: no access without identity",
        MSK,
        ("Properties", "ClientAuthentication", "Unauthenticated", "Enabled"),
        Put(True),
    ),
    Mutation("Kafka: IAM", MSK, ("Properties", "ClientAuthentication", "Sasl", "Iam", "Enabled"), Put(False)),
    Mutation("Kafka: broker logs", MSK, ("Properties", "LoggingInfo"), Remove()),
    Mutation(
        "Kafka: nothing public",
        MSK,
        ("Properties", "BrokerNodeGroupInfo", "ConnectivityInfo"),
        Put({"PublicAccess": {"Type": "SERVICE_PROVIDED_EIPS"}}),
    ),
    Mutation(
        "Kafka: no topic by accident",
        "AWS::MSK::Configuration",
        ("Properties", "ServerProperties"),
        Put("auto.create.topics.enable=true"),
    ),
)

_MONITORING = ("Properties", "MonitoringConfiguration")
JOBS = (
    Mutation("Glue: one run at a time", GLUE, ("Properties", "ExecutionProperty"), Remove()),
    Mutation("Glue: limit of runs", GLUE, ("Properties", "ExecutionProperty", "MaxConcurrentRuns"), Put(2)),
    Mutation("Glue: no queue of runs", GLUE, ("Properties", "JobRunQueuingEnabled"), Put(True)),
    Mutation("Glue: blank timeout", GLUE, ("Properties", "Timeout"), Put(2880)),
    Mutation("Glue: maintenance window", GLUE, ("Properties", "MaintenanceWindow"), Remove()),
    Mutation("Glue: private network", GLUE, ("Properties", "Connections"), Remove()),
    Mutation("Glue: security configuration", GLUE, ("Properties", "SecurityConfiguration"), Remove()),
    Mutation(
        "Glue: continuous log",
        GLUE,
        ("Properties", "NonOverridableArguments", "--enable-continuous-cloudwatch-log"),
        Remove(),
    ),
    *(
        Mutation(f"Glue: fixed {key}", GLUE, ("Properties", "NonOverridableArguments", key), Remove())
        for key in ("--scriptLocation", "--extra-py-files", "--launch-document", "--conf")
    ),
    Mutation(
        "Glue: no open arguments", GLUE, ("Properties", "DefaultArguments"), Put({"--extra-files": "s3://x"})
    ),
    Mutation(
        "Glue connection: security group",
        "AWS::Glue::Connection",
        ("Properties", "ConnectionInput", "PhysicalConnectionRequirements", "SecurityGroupIdList"),
        Remove(),
    ),
    Mutation(
        "Glue connection: subnet",
        "AWS::Glue::Connection",
        ("Properties", "ConnectionInput", "PhysicalConnectionRequirements", "SubnetId"),
        Remove(),
    ),
    *(
        Mutation(f"Glue: {part}", SECURITY, ("Properties", "EncryptionConfiguration", *path), Put("DISABLED"))
        for part, path in {
            "encryption of objects": ("S3Encryptions", 0, "S3EncryptionMode"),
            "encryption of logs": ("CloudWatchEncryption", "CloudWatchEncryptionMode"),
            "encryption of bookmarks": ("JobBookmarksEncryption", "JobBookmarksEncryptionMode"),
        }.items()
    ),
    *(
        Mutation(f"Glue: key of {part}", SECURITY, ("Properties", "EncryptionConfiguration", *path), Remove())
        for part, path in {
            "objects": ("S3Encryptions", 0, "KmsKeyArn"),
            "logs": ("CloudWatchEncryption", "KmsKeyArn"),
            "bookmarks": ("JobBookmarksEncryption", "KmsKeyArn"),
        }.items()
    ),
    Mutation("EMR: private network", EMR, ("Properties", "NetworkConfiguration"), Remove()),
    Mutation("EMR: two zones", EMR, ("Properties", "NetworkConfiguration", "SubnetIds"), Put(["subnet-1"])),
    Mutation(
        "EMR: security group", EMR, ("Properties", "NetworkConfiguration", "SecurityGroupIds"), Remove()
    ),
    Mutation(
        "EMR: key of logs on S3",
        EMR,
        (*_MONITORING, "S3MonitoringConfiguration", "EncryptionKeyArn"),
        Remove(),
    ),
    Mutation(
        "EMR: key of logs in CloudWatch",
        EMR,
        (*_MONITORING, "CloudWatchLoggingConfiguration", "EncryptionKeyArn"),
        Remove(),
    ),
    Mutation(
        "EMR: no logs that AWS keeps",
        EMR,
        (*_MONITORING, "ManagedPersistenceMonitoringConfiguration"),
        Remove(),
    ),
    *(
        Mutation(f"{engine}: the job's own group", kind, (*path, 1), Remove())
        for engine, kind, path in (
            ("EMR", EMR, ("Properties", "NetworkConfiguration", "SecurityGroupIds")),
            (
                "Glue",
                "AWS::Glue::Connection",
                ("Properties", "ConnectionInput", "PhysicalConnectionRequirements", "SecurityGroupIdList"),
            ),
        )
    ),
    Mutation("EMR: limit of workers", EMR, ("Properties", "MaximumCapacity"), Remove()),
    Mutation("EMR: stop when idle", EMR, ("Properties", "AutoStopConfiguration"), Remove()),
)

MUTATIONS: tuple[Mutation, ...] = (
    *STORAGE,
    *KEYS_AND_SERVICES,
    *KAFKA,
    *JOBS,
    *NETWORK,
    *PERMISSIONS,
    *HISTORY,
)
