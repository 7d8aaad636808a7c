{{/* The name of everything that a release creates: fixed, because a cluster has one controller, and one daemon on each node. */}}
{{- define "staffetta.name" -}}
{{ eq .Values.preset "cni" | ternary "staffetta-cni" "staffetta" }}
{{- end }}

{{- define "staffetta.labels" -}}
app.kubernetes.io/name: {{ include "staffetta.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "staffetta.pod-labels" -}}
{{ mergeOverwrite (include "staffetta.labels" . | fromYaml) .Values.podLabels | toYaml }}
{{- end }}

{{- define "staffetta.selector" -}}
app.kubernetes.io/name: {{ include "staffetta.name" . }}
{{- end }}

{{- define "staffetta.image" -}}
{{- with .Values.image -}}
{{ with .registry }}{{ . }}/{{ end }}{{ .repository }}
{{- if or .tag (not .digest) }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The name of the account that the pods have. */}}
{{- define "staffetta.account" -}}
{{ .Values.serviceAccount.name | default (include "staffetta.name" .) }}
{{- end }}

{{- define "staffetta.service-account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "staffetta.account" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "staffetta.labels" . | nindent 4 }}
    {{- with .Values.serviceAccount.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
# The pods mount the token explicitly; others that use this account get none.
automountServiceAccountToken: false
{{- end }}

{{- define "staffetta.subjects" -}}
- kind: ServiceAccount
  name: {{ include "staffetta.account" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* The configuration in JSON: options of the chart, of the preset, of `config` and of `extraConfig`. Each replaces those before it. */}}
{{- define "staffetta.config" -}}
{{- $config := dict "log" (dict "format" "json") }}
{{- $any := .Values.ipv6 | ternary "[::]" "0.0.0.0" }}
{{- if ne .Values.preset "cni" }}
{{- $_ := set $config "admin" (dict "probes_listen" (print $any ":8081")) }}
{{- $_ := set $config "leader_election" (dict "enabled" true "lease_name" "staffetta") }}
{{- end }}
{{- if .Values.vifProof.secret }}
{{- $_ := set $config "kubernetes" (dict "vif_proof_key_file" "/etc/staffetta-vif-proof/key") }}
{{- end }}
{{- $preset := .Files.Get (printf "presets/%s.yaml" .Values.preset) | fromYaml }}
{{- range list ($preset.config | default dict) .Values.config .Values.extraConfig }}
{{- range $section, $options := . }}
{{- $_ := set $config $section (get $config $section | default dict) }}
{{- range $option, $value := $options }}
{{- $_ := set (get $config $section) $option $value }}
{{- end }}
{{- end }}
{{- end }}
{{- $handlers := dig "kubernetes" "enabled_handlers" list $config }}
{{- if not (or $handlers (eq .Values.preset "cni")) }}
{{- fail "choose what to install: set `preset` to openstack, iosxe, koupleless, prefix or cni, or name handlers and their drivers in `config.kubernetes`" }}
{{- /* `helm lint` goes on after a failure. */}}
{{- $_ := set $config "kubernetes" (dict "enabled_handlers" list) }}
{{- end }}
{{- if and (has "prefix_ip" $handlers) .Values.webhook.enabled }}
{{- $_ := set $config "webhook" (merge (dict "listen" (print $any ":9443")) (get $config "webhook" | default dict)) }}
{{- end }}
{{- toJson $config }}
{{- end }}

{{/* The handlers in JSON, in a list. */}}
{{- define "staffetta.handlers" -}}
{{ include "staffetta.config" . | fromJson | dig "kubernetes" "enabled_handlers" list | toJson }}
{{- end }}

{{/* A value in TOML. The strings, numbers and truth values of JSON are those of TOML. */}}
{{- define "staffetta.toml" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha }}{{ if $index }},{{ end }} {{ toJson $key }} = {{ include "staffetta.toml" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $index, $item := . }}{{ if $index }}, {{ end }}{{ include "staffetta.toml" $item }}{{ end }}]
{{- else -}}
{{ toJson . }}
{{- end }}
{{- end }}

{{/* The file staffetta.toml. */}}
{{- define "staffetta.file" -}}
{{- range $section, $options := include "staffetta.config" . | fromJson }}
[{{ $section }}]
{{- range $option, $value := $options }}
{{ $option }} = {{ include "staffetta.toml" $value }}
{{- end }}
{{ end -}}
{{- end }}

{{/* Where the images of pods come from. */}}
{{- define "staffetta.pull-secrets" -}}
{{- with concat (dig "imagePullSecrets" list (.Values.global | default dict)) .Values.imagePullSecrets | uniq }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The node and the network of a pod that runs the program. */}}
{{- define "staffetta.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- if .Values.dnsPolicy }}
dnsPolicy: {{ .Values.dnsPolicy }}
{{- else if .Values.hostNetwork }}
# The resolver of the node: the cluster's DNS is a pod that waits for this controller.
dnsPolicy: Default
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or .Values.hostNetwork .Values.tolerations }}
tolerations:
  {{- if .Values.hostNetwork }}
  # Nodes are not ready as long as there is no pod network.
  - {key: node.kubernetes.io/not-ready, operator: Exists}
  - {key: node.kubernetes.io/network-unavailable, operator: Exists}
  {{- end }}
  {{- with .Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The mounts and the volumes of the controller, of a list: the root, whether there is a clouds.yaml, and `optional` if its Secret may be missing. */}}
{{- define "staffetta.mounts" -}}
{{- $values := (first .).Values -}}
- {name: configuration, mountPath: /etc/staffetta, readOnly: true}
{{- if index . 1 }}
# Where the OpenStack drivers look for clouds.yaml.
- {name: openstack, mountPath: /etc/openstack, readOnly: true}
{{- end }}
{{- if $values.vifProof.secret }}
- {name: vif-proof, mountPath: /etc/staffetta-vif-proof, readOnly: true}
{{- end }}
{{- with $values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "staffetta.volumes" -}}
{{- $values := (first .).Values -}}
- {name: configuration, configMap: {name: staffetta-configuration}}
{{- if index . 1 }}
- {name: openstack, secret: {secretName: {{ $values.openstack.secret }}{{ if gt (len .) 2 }}, optional: true{{ end }}}}
{{- end }}
{{- with $values.vifProof.secret }}
- {name: vif-proof, secret: {secretName: {{ . }}{{ if gt (len $) 2 }}, optional: true{{ end }}}}
{{- end }}
{{- with $values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
