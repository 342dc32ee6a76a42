{{/* The pod template of the proxies, for either kind of workload. */}}
{{- define "disagg-proxy.pod" -}}
metadata:
  labels:
    {{- include "disagg-proxy.podLabels" . | nindent 4 }}
    app.kubernetes.io/component: proxy
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.restartOnConfigChange .Values.podAnnotations }}
  annotations:
    {{- if .Values.restartOnConfigChange }}
    checksum/config: {{ include "disagg-proxy.config" . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  serviceAccountName: {{ include "disagg-proxy.serviceAccountName" . }}
  automountServiceAccountToken: {{ eq (include "disagg-proxy.asksKubernetes" .) "true" }}
  # A Service called disagg-proxy would set variables that look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "disagg-proxy.gracePeriod" . }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: proxy
      {{- include "disagg-proxy.container" . | nindent 6 }}
    {{- with .Values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "disagg-proxy.volumes" . | nindent 4 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $own := dict "labelSelector" (dict "matchLabels" (include "disagg-proxy.proxySelector" $ | fromYaml)) }}
    - {{- toYaml (ternary . (merge $own .) (hasKey . "labelSelector")) | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "disagg-proxy.container" -}}
image: {{ include "disagg-proxy.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, -c, /etc/disagg-proxy/config.yaml{{ range .Values.extraArgs }}, {{ . | quote }}{{ end }}]
ports:
  - name: http
    containerPort: {{ .Values.config.port }}
env:
  {{- if and (eq .Values.workload.kind "StatefulSet") (ne (dig "node_id" "" .Values.config | toString) "auto") }}
  # Empty on clusters that do not set the label: the node id is then random, and logged.
  - name: DISAGG_PROXY_NODE_ID
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
  {{- end }}
  {{- if .Values.internalAuthSecret.name }}
  - name: DISAGG_PROXY_INTERNAL_REQUEST_AUTH_KEY
    valueFrom:
      secretKeyRef:
        {{- toYaml .Values.internalAuthSecret | nindent 8 }}
  {{- end }}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $kind, $path := dict "liveness" "/health/live" "readiness" "/health/ready" "startup" "/health/live" }}
{{ $kind }}Probe:
  {{- if $.Values.tls.clientCertificates }}
  tcpSocket: {port: http}
  {{- else }}
  httpGet: {path: {{ $path }}, port: http, scheme: {{ ternary "HTTPS" "HTTP" (ne $.Values.tls.secretName "") }}}
  {{- end }}
  {{- toYaml (get $.Values.probes $kind) | nindent 2 }}
{{- end }}
{{- if .Values.shutdown.preStopSeconds }}
lifecycle:
  preStop: {exec: {command: [sleep, {{ .Values.shutdown.preStopSeconds | toString | quote }}]}}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/disagg-proxy, readOnly: true}
  {{- if include "disagg-proxy.listsWorkers" . }}
  - {name: workers, mountPath: /etc/disagg-proxy-workers, readOnly: true}
  {{- end }}
  - {name: run, mountPath: /run/disagg-proxy}
  - {name: tmp, mountPath: /tmp}
  {{- range $folder, $_ := include "disagg-proxy.secretFolders" . | fromYaml }}
  - {name: secret-{{ $folder }}, mountPath: /etc/disagg-proxy-secrets/{{ $folder }}, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "disagg-proxy.volumes" -}}
- name: config
  configMap: {name: {{ include "disagg-proxy.fullname" . }}}
{{- if include "disagg-proxy.listsWorkers" . }}
- name: workers
  configMap: {name: {{ include "disagg-proxy.fullname" . }}-workers}
{{- end }}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- range $folder, $name := include "disagg-proxy.secretFolders" . | fromYaml }}
- name: secret-{{ $folder }}
  secret: {secretName: {{ $name }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
