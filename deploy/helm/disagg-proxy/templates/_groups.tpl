{{/* A group of workers with the defaults filled in, as YAML. Takes {root, role, group}. */}}
{{- define "disagg-proxy.group" -}}
{{- $group := mergeOverwrite (deepCopy .root.Values.workers.defaults) (deepCopy .group) -}}
{{- $options := deepCopy (default (dict) (get .root.Values.workers.roleOptions .role)) -}}
{{- if eq .root.Values.workers.foundBy "disagg_cluster" -}}
  {{- $_ := set $options "disagg_cluster" (deepCopy (default (dict) .root.Values.config.disagg_cluster)) -}}
{{- end -}}
{{- $_ := set $group "options" (mergeOverwrite $options $group.options) -}}
{{- $_ := set $group "role" .role -}}
{{- $_ := set $group "fullname" (printf "%s-%s" (include "disagg-proxy.fullname" .root) $group.name) -}}
{{- toYaml $group -}}
{{- end }}

{{/* All groups, complete. */}}
{{- define "disagg-proxy.groups" -}}
{{- $groups := list -}}
{{- range $role := list "context" "generation" -}}
  {{- range get $.Values.workers $role -}}
    {{- $groups = append $groups (include "disagg-proxy.group" (dict "root" $ "role" $role "group" .) | fromYaml) -}}
  {{- end -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end }}

{{/* "true" when the proxies get a file with the urls of the workers. */}}
{{- define "disagg-proxy.listsWorkers" -}}
{{- if and (eq .Values.workers.foundBy "list") (or .Values.workers.context .Values.workers.generation) }}true{{ end -}}
{{- end }}

{{/* The host name behind which all pods of a group are. Takes {root, group}. */}}
{{- define "disagg-proxy.groupHost" -}}
{{- printf "%s.%s.svc.%s" .group.fullname .root.Release.Namespace .root.Values.clusterDomain -}}
{{- end }}

{{/* That file: one url per pod. */}}
{{- define "disagg-proxy.workerList" -}}
{{- $workers := list -}}
{{- range $group := include "disagg-proxy.groups" . | fromYamlArray -}}
  {{- $host := include "disagg-proxy.groupHost" (dict "root" $ "group" $group) -}}
  {{- range $index := until (int $group.replicas) -}}
    {{- $url := printf "http://%s-%d.%s:%d" $group.fullname $index $host (int $group.port) -}}
    {{- $worker := dict "url" $url "role" $group.role -}}
    {{- with $group.domain }}{{ $_ := set $worker "labels" (dict "domain" .) }}{{ end -}}
    {{- $workers = append $workers $worker -}}
  {{- end -}}
{{- end -}}
{{- toYaml $workers -}}
{{- end }}

{{/* Entries of config.proxy.discovery for the chart's workers. */}}
{{- define "disagg-proxy.sources" -}}
{{- $sources := list -}}
{{- if include "disagg-proxy.listsWorkers" . -}}
  {{- $sources = append $sources (dict "type" "file" "name" "chart" "path" "/etc/disagg-proxy-workers/workers.yaml") -}}
{{- else if has .Values.workers.foundBy (list "dns" "kubernetes") -}}
  {{- range $group := include "disagg-proxy.groups" . | fromYamlArray -}}
    {{- $source := dict "type" $.Values.workers.foundBy "name" $group.name "role" $group.role -}}
    {{- if eq $source.type "dns" -}}
      {{- $host := include "disagg-proxy.groupHost" (dict "root" $ "group" $group) -}}
      {{- $source = merge $source (dict "host" $host "port" $group.port) -}}
    {{- else -}}
      {{- $source = merge $source (dict "service" $group.fullname "port" "http") -}}
      {{- with $group.nodeLabel }}{{ $_ := set $source "node_label" . }}{{ end -}}
    {{- end -}}
    {{- with $group.domain }}{{ $_ := set $source "labels" (dict "domain" .) }}{{ end -}}
    {{- $sources = append $sources $source -}}
  {{- end -}}
{{- end -}}
{{- toYaml $sources -}}
{{- end }}

{{/* A model for the printed curl. */}}
{{- define "disagg-proxy.exampleModel" -}}
{{- $groups := include "disagg-proxy.groups" . | fromYamlArray -}}
{{- if $groups }}{{ (first $groups).model | base }}{{ else }}MODEL{{ end -}}
{{- end }}
