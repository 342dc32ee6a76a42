{{/* Names and labels. A StatefulSet's name becomes a label with a hash behind: 52 characters at most, 16 of them of a group. */}}

{{- define "disagg-proxy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 35 | trimSuffix "-" -}}
{{- end }}

{{- define "disagg-proxy.fullname" -}}
{{- $name := include "disagg-proxy.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 35 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 35 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 35 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Of what is in no namespace: releases of other namespaces must not take it away. */}}
{{- define "disagg-proxy.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "disagg-proxy.fullname" .) -}}
{{- end }}

{{- define "disagg-proxy.selector" -}}
app.kubernetes.io/name: {{ include "disagg-proxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "disagg-proxy.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: disagg-proxy
{{ include "disagg-proxy.podLabels" . }}
{{- end }}

{{/* Without versions: those of the chart must not restart workers. */}}
{{- define "disagg-proxy.podLabels" -}}
{{ include "disagg-proxy.selector" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels that only the proxies' pods have. */}}
{{- define "disagg-proxy.proxySelector" -}}
{{ include "disagg-proxy.selector" . }}
app.kubernetes.io/component: proxy
{{- end }}

{{- define "disagg-proxy.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "disagg-proxy.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "disagg-proxy.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end }}

{{/* What an autoscaler or a budget points to. */}}
{{- define "disagg-proxy.workloadReference" -}}
apiVersion: apps/v1
kind: {{ .Values.workload.kind }}
name: {{ include "disagg-proxy.fullname" . }}
{{- end }}

{{- define "disagg-proxy.scaled" -}}
{{- if or .Values.autoscaling.enabled .Values.keda.enabled }}true{{ end -}}
{{- end }}
