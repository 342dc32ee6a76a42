{{/* The namespaces of the sources that ask the Kubernetes API, as a YAML list. */}}
{{- define "disagg-proxy.askedNamespaces" -}}
{{- $given := default (list) (default (dict) .Values.config.proxy).discovery -}}
{{- $namespaces := list -}}
{{- range concat $given (include "disagg-proxy.sources" . | fromYamlArray) -}}
  {{- if eq .type "kubernetes" }}{{ $namespaces = append $namespaces (default $.Release.Namespace .namespace) }}{{ end -}}
{{- end -}}
{{- toYaml (uniq $namespaces) -}}
{{- end }}

{{/* "true" or empty. */}}
{{- define "disagg-proxy.asksKubernetes" -}}
{{- if include "disagg-proxy.askedNamespaces" . | fromYamlArray }}true{{ end -}}
{{- end }}
