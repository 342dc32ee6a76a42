{{/* Takes {root, group}. */}}
{{- define "disagg-proxy.workerSelector" -}}
{{ include "disagg-proxy.selector" .root }}
app.kubernetes.io/component: worker
disagg-proxy/role: {{ .group.role }}
disagg-proxy/group: {{ .group.name }}
{{- end }}

{{/* Claims of a group's pods: its own, and the channel of its ComputeDomain. */}}
{{- define "disagg-proxy.claims" -}}
{{- $claims := .group.resourceClaims -}}
{{- with .group.computeDomain -}}
  {{- $template := printf "%s-%s-channel" (include "disagg-proxy.fullname" $.root) . -}}
  {{- $claims = append $claims (dict "name" "imex-channel" "resourceClaimTemplateName" $template) -}}
{{- end -}}
{{- toYaml $claims -}}
{{- end }}

{{/* The given affinity, and the nodes of the group's NVLink domain. */}}
{{- define "disagg-proxy.workerAffinity" -}}
{{- $affinity := deepCopy .group.affinity -}}
{{- if .group.domain -}}
  {{- $here := dict "key" "nvidia.com/gpu.clique" "operator" "In" "values" (list .group.domain) -}}
  {{- $node := default (dict) $affinity.nodeAffinity -}}
  {{- $required := default (dict) $node.requiredDuringSchedulingIgnoredDuringExecution -}}
  {{- /* Terms are alternatives: the domain is a condition of each. */ -}}
  {{- $terms := list -}}
  {{- range default (list (dict)) $required.nodeSelectorTerms -}}
    {{- $terms = append $terms (set . "matchExpressions" (append (default (list) .matchExpressions) $here)) -}}
  {{- end -}}
  {{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
  {{- $_ := set $affinity "nodeAffinity" $node -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end }}

{{/* The pod template of a group. Takes {root, group}. */}}
{{- define "disagg-proxy.workerPod" -}}
{{- $group := .group -}}
{{- $claims := include "disagg-proxy.claims" . | fromYamlArray -}}
metadata:
  labels:
    {{- include "disagg-proxy.podLabels" .root | nindent 4 }}
    app.kubernetes.io/component: worker
    disagg-proxy/role: {{ $group.role }}
    disagg-proxy/group: {{ $group.name }}
    {{- with $group.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/options: {{ toYaml $group.options | sha256sum }}
    {{- with $group.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $group.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- if $group.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  terminationGracePeriodSeconds: {{ $group.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml $group.podSecurityContext | nindent 4 }}
  {{- with $claims }}
  resourceClaims:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $group.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: worker
      {{- include "disagg-proxy.workerContainer" . | nindent 6 }}
  volumes:
    - name: options
      configMap: {name: {{ $group.fullname }}-options}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $group.shmSize }}}
    {{- with $group.modelVolume.claimName }}
    - name: model
      persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
    {{- end }}
    {{- with $group.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "topologySpreadConstraints" "priorityClassName" "runtimeClassName" }}
  {{- with get $group $key }}
  {{ $key }}: {{ toJson . }}
  {{- end }}
  {{- end }}
  {{- with include "disagg-proxy.workerAffinity" . | fromYaml }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "disagg-proxy.workerContainer" -}}
{{- $group := .group -}}
{{- $resources := deepCopy $group.resources -}}
{{- if $group.gpus -}}
  {{- $_ := set $resources "limits" (merge (dict "nvidia.com/gpu" $group.gpus) (default (dict) $resources.limits)) -}}
{{- end -}}
{{- with include "disagg-proxy.claims" . | fromYamlArray -}}
  {{- $names := list -}}
  {{- range . }}{{ $names = append $names (dict "name" .name) }}{{ end -}}
  {{- $_ := set $resources "claims" $names -}}
{{- end -}}
image: {{ $group.image | quote }}
imagePullPolicy: {{ $group.imagePullPolicy }}
command:
  {{- toYaml $group.command | nindent 2 }}
args:
  - {{ $group.model | quote }}
  - --host
  {{- if eq .root.Values.workers.foundBy "disagg_cluster" }}
  # The address that the worker registers.
  - $(POD_IP)
  - --server_role
  - {{ upper $group.role }}
  {{- else }}
  - 0.0.0.0
  {{- end }}
  - --port
  - {{ $group.port | toString | quote }}
  - {{ $group.optionsFlag }}
  - /etc/trtllm/options.yaml
  {{- with $group.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: http
    containerPort: {{ $group.port }}
env:
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- range $name, $value := $group.env }}
  - {name: {{ $name }}, value: {{ $value | toString | quote }}}
  {{- end }}
  {{- with $group.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $group.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
startupProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: {{ ceil (divf $group.startupSeconds 10) }}
livenessProbe:
  httpGet: {path: /health, port: http}
  {{- toYaml $group.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /health, port: http}
  {{- toYaml $group.readinessProbe | nindent 2 }}
securityContext:
  {{- toYaml $group.securityContext | nindent 2 }}
resources:
  {{- toYaml $resources | nindent 2 }}
volumeMounts:
  - {name: options, mountPath: /etc/trtllm, readOnly: true}
  - {name: shm, mountPath: /dev/shm}
  {{- if $group.modelVolume.claimName }}
  - {name: model, mountPath: {{ $group.modelVolume.mountPath }}, readOnly: true}
  {{- end }}
  {{- with $group.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
