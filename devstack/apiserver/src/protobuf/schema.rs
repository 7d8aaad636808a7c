//! The field numbers of the kinds that `kubectl create` creates from flags. They come from the `generated.proto` files of
//! k8s.io/api and k8s.io/apimachinery, which never change the meaning of a number.

use Field::{
    BytesMap, Ignored, Message, Messages, Number, NumberOrText, OptionalNumber, OptionalTruth, QuantityMap,
    Text, TextMap, Texts, Truth,
};

/// The type of a field. A zero is written even if nothing was set, so only optional fields keep their absence.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    Text,
    Texts,
    Number,
    OptionalNumber,
    Truth,
    OptionalTruth,
    NumberOrText,
    TextMap,
    BytesMap,
    QuantityMap,
    Message(&'static str),
    Messages(&'static str),
    /// Written by the server alone.
    Ignored,
}

/// A field of a message: its number, its name in JSON, what it holds.
pub(super) type Row = (u64, &'static str, Field);

/// The messages by name.
#[rustfmt::skip]
pub(super) const MESSAGES: &[(&str, &[Row])] = &[
    ("Namespace", &[
        (1, "metadata", Message("ObjectMeta")), (2, "spec", Message("NamespaceSpec")), (3, "status", Ignored),
    ]),
    ("NamespaceSpec", &[
        (1, "finalizers", Texts),
    ]),
    ("ConfigMap", &[
        (1, "metadata", Message("ObjectMeta")), (4, "immutable", OptionalTruth), (2, "data", TextMap),
        (3, "binaryData", BytesMap),
    ]),
    ("Secret", &[
        (1, "metadata", Message("ObjectMeta")), (5, "immutable", OptionalTruth), (2, "data", BytesMap),
        (4, "stringData", TextMap), (3, "type", Text),
    ]),
    ("ServiceAccount", &[
        (1, "metadata", Message("ObjectMeta")), (2, "secrets", Messages("ObjectReference")),
        (3, "imagePullSecrets", Messages("LocalObjectReference")),
        (4, "automountServiceAccountToken", OptionalTruth),
    ]),
    ("Service", &[
        (1, "metadata", Message("ObjectMeta")), (2, "spec", Message("ServiceSpec")), (3, "status", Ignored),
    ]),
    ("ServiceSpec", &[
        (1, "ports", Messages("ServicePort")), (2, "selector", TextMap), (3, "clusterIP", Text),
        (18, "clusterIPs", Texts), (4, "type", Text), (5, "externalIPs", Texts), (7, "sessionAffinity", Text),
        (8, "loadBalancerIP", Text), (9, "loadBalancerSourceRanges", Texts), (10, "externalName", Text),
        (11, "externalTrafficPolicy", Text), (12, "healthCheckNodePort", Number),
        (13, "publishNotReadyAddresses", Truth), (19, "ipFamilies", Texts), (17, "ipFamilyPolicy", Text),
        (20, "allocateLoadBalancerNodePorts", OptionalTruth), (21, "loadBalancerClass", Text),
        (22, "internalTrafficPolicy", Text), (23, "trafficDistribution", Text),
    ]),
    ("ServicePort", &[
        (1, "name", Text), (2, "protocol", Text), (6, "appProtocol", Text), (3, "port", Number),
        (4, "targetPort", NumberOrText), (5, "nodePort", Number),
    ]),
    ("Deployment", &[
        (1, "metadata", Message("ObjectMeta")), (2, "spec", Message("DeploymentSpec")), (3, "status", Ignored),
    ]),
    ("DeploymentSpec", &[
        (1, "replicas", OptionalNumber), (2, "selector", Message("LabelSelector")),
        (3, "template", Message("PodTemplateSpec")), (4, "strategy", Message("DeploymentStrategy")),
        (5, "minReadySeconds", Number), (6, "revisionHistoryLimit", OptionalNumber), (7, "paused", Truth),
        (9, "progressDeadlineSeconds", OptionalNumber),
    ]),
    ("DeploymentStrategy", &[
        (1, "type", Text), (2, "rollingUpdate", Message("RollingUpdateDeployment")),
    ]),
    ("RollingUpdateDeployment", &[
        (1, "maxUnavailable", NumberOrText), (2, "maxSurge", NumberOrText),
    ]),
    ("PodTemplateSpec", &[
        (1, "metadata", Message("ObjectMeta")), (2, "spec", Message("PodSpec")),
    ]),
    ("PodSpec", &[
        (20, "initContainers", Messages("Container")), (2, "containers", Messages("Container")),
        (3, "restartPolicy", Text), (4, "terminationGracePeriodSeconds", OptionalNumber),
        (5, "activeDeadlineSeconds", OptionalNumber), (6, "dnsPolicy", Text), (7, "nodeSelector", TextMap),
        (8, "serviceAccountName", Text), (9, "serviceAccount", Text),
        (21, "automountServiceAccountToken", OptionalTruth), (10, "nodeName", Text), (11, "hostNetwork", Truth),
        (12, "hostPID", Truth), (13, "hostIPC", Truth), (27, "shareProcessNamespace", Truth),
        (15, "imagePullSecrets", Messages("LocalObjectReference")), (16, "hostname", Text),
        (17, "subdomain", Text), (19, "schedulerName", Text), (24, "priorityClassName", Text),
        (25, "priority", OptionalNumber), (29, "runtimeClassName", Text),
        (30, "enableServiceLinks", OptionalTruth), (31, "preemptionPolicy", Text), (32, "overhead", QuantityMap),
        (35, "setHostnameAsFQDN", Truth), (37, "hostUsers", Truth),
        (40, "resources", Message("ResourceRequirements")), (41, "hostnameOverride", Text),
    ]),
    ("Container", &[
        (1, "name", Text), (2, "image", Text), (3, "command", Texts), (4, "args", Texts), (5, "workingDir", Text),
        (6, "ports", Messages("ContainerPort")), (7, "env", Messages("EnvVar")),
        (8, "resources", Message("ResourceRequirements")), (24, "restartPolicy", Text),
        (13, "terminationMessagePath", Text), (20, "terminationMessagePolicy", Text),
        (14, "imagePullPolicy", Text), (16, "stdin", Truth), (17, "stdinOnce", Truth), (18, "tty", Truth),
    ]),
    ("ContainerPort", &[
        (1, "name", Text), (2, "hostPort", Number), (3, "containerPort", Number), (4, "protocol", Text),
        (5, "hostIP", Text),
    ]),
    ("EnvVar", &[
        (1, "name", Text), (2, "value", Text),
    ]),
    ("ResourceRequirements", &[
        (1, "limits", QuantityMap), (2, "requests", QuantityMap),
    ]),
    ("LocalObjectReference", &[
        (1, "name", Text),
    ]),
    ("ObjectReference", &[
        (1, "kind", Text), (2, "namespace", Text), (3, "name", Text), (4, "uid", Text), (5, "apiVersion", Text),
        (6, "resourceVersion", Text), (7, "fieldPath", Text),
    ]),
    ("ObjectMeta", &[
        (1, "name", Text), (2, "generateName", Text), (3, "namespace", Text), (4, "selfLink", Ignored),
        (5, "uid", Text), (6, "resourceVersion", Text), (7, "generation", Number),
        (8, "creationTimestamp", Ignored), (9, "deletionTimestamp", Ignored),
        (10, "deletionGracePeriodSeconds", Number), (11, "labels", TextMap), (12, "annotations", TextMap),
        (13, "ownerReferences", Messages("OwnerReference")), (14, "finalizers", Texts),
        (17, "managedFields", Ignored),
    ]),
    ("OwnerReference", &[
        (5, "apiVersion", Text), (1, "kind", Text), (3, "name", Text), (4, "uid", Text),
        (6, "controller", OptionalTruth), (7, "blockOwnerDeletion", OptionalTruth),
    ]),
    ("LabelSelector", &[
        (1, "matchLabels", TextMap), (2, "matchExpressions", Messages("LabelSelectorRequirement")),
    ]),
    ("LabelSelectorRequirement", &[
        (1, "key", Text), (2, "operator", Text), (3, "values", Texts),
    ]),
    ("Role", &[
        (1, "metadata", Message("ObjectMeta")), (2, "rules", Messages("PolicyRule")),
    ]),
    ("RoleBinding", &[
        (1, "metadata", Message("ObjectMeta")), (2, "subjects", Messages("Subject")),
        (3, "roleRef", Message("RoleRef")),
    ]),
    ("ClusterRole", &[
        (1, "metadata", Message("ObjectMeta")), (2, "rules", Messages("PolicyRule")),
    ]),
    ("ClusterRoleBinding", &[
        (1, "metadata", Message("ObjectMeta")), (2, "subjects", Messages("Subject")),
        (3, "roleRef", Message("RoleRef")),
    ]),
    ("PolicyRule", &[
        (1, "verbs", Texts), (2, "apiGroups", Texts), (3, "resources", Texts), (4, "resourceNames", Texts),
        (5, "nonResourceURLs", Texts),
    ]),
    ("RoleRef", &[
        (1, "apiGroup", Text), (2, "kind", Text), (3, "name", Text),
    ]),
    ("Subject", &[
        (1, "kind", Text), (2, "apiGroup", Text), (3, "name", Text), (4, "namespace", Text),
    ]),
];
