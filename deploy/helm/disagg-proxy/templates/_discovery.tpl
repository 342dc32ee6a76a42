{{/* The namespaces of the sources that ask the Kubernetes API, as a YAML list. */}}
{{- define "disagg-proxy.askedNamespaces" -}}
{{- $namespaces := list -}}
{{- range include "disagg-proxy.kubernetesSources" . | fromYamlArray -}}
  {{- $namespaces = append $namespaces (default $.Release.Namespace .namespace) -}}
{{- end -}}
{{- toYaml (uniq $namespaces) -}}
{{- end }}

{{/* Those sources, as YAML. */}}
{{- define "disagg-proxy.kubernetesSources" -}}
{{- $given := default (list) (default (dict) .Values.config.proxy).discovery -}}
{{- $asking := list -}}
{{- range concat $given (include "disagg-proxy.sources" . | fromYamlArray) -}}
  {{- if eq .type "kubernetes" }}{{ $asking = append $asking . }}{{ end -}}
{{- end -}}
{{- toYaml $asking -}}
{{- end }}

{{/* "true" when one of them reads a label of nodes. */}}
{{- define "disagg-proxy.asksNodes" -}}
{{- $asks := "" -}}
{{- range include "disagg-proxy.kubernetesSources" . | fromYamlArray }}{{ if .node_label }}{{ $asks = "true" }}{{ end }}{{ end -}}
{{- $asks -}}
{{- end }}

{{/* "true" or empty. */}}
{{- define "disagg-proxy.asksKubernetes" -}}
{{- if include "disagg-proxy.askedNamespaces" . | fromYamlArray }}true{{ end -}}
{{- end }}
