{{/* "true" when a source of config.proxy.discovery is the Kubernetes API, else empty. */}}
{{- define "disagg-proxy.asksKubernetes" -}}
{{- range (default (dict) .Values.config.proxy).discovery -}}
{{- if eq .type "kubernetes" }}true{{ break }}{{ end -}}
{{- end -}}
{{- end }}
