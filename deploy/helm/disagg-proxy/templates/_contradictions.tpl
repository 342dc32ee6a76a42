{{/* Ends with a sentence when values contradict each other in a way that values.schema.json cannot say. */}}
{{- define "disagg-proxy.contradictions" -}}
{{- if and .Values.autoscaling.enabled .Values.keda.enabled -}}
  {{- fail "autoscaling.enabled and keda.enabled: two autoscalers would fight over the replicas; choose one" -}}
{{- end -}}
{{- $scaler := ternary .Values.keda .Values.autoscaling .Values.keda.enabled -}}
{{- $most := ternary $scaler.maxReplicas .Values.replicas (ne (include "disagg-proxy.scaled" .) "") -}}
{{- if and (eq .Values.workload.kind "StatefulSet") (gt (add .Values.workload.firstNodeId $most | int) 256) -}}
  {{- fail "node ids end at 255: workload.firstNodeId and the number of proxies add up to more than 256" -}}
{{- end -}}
{{- if and (hasKey .Values.config "node_id") (ne (toString .Values.config.node_id) "auto") -}}
  {{- if or (eq .Values.workload.kind "StatefulSet") (gt ($most | int) 1) -}}
    {{- fail "config.node_id: every proxy would have the same; leave it out (StatefulSet: ordinals, from workload.firstNodeId)" -}}
  {{- end -}}
{{- end -}}
{{- if and (include "disagg-proxy.scaled" .) (gt ($scaler.minReplicas | int) ($scaler.maxReplicas | int)) -}}
  {{- fail "minReplicas is above maxReplicas" -}}
{{- end -}}
{{- $loopback := regexMatch "^(unix:|localhost:|127\\.|\\[::1\\]:)" .Values.admin.listen -}}
{{- if and .Values.admin.enabled (not $loopback) (not .Values.admin.tokenSecret.name) -}}
  {{- fail "admin.listen: an address that other pods reach needs admin.tokenSecret.name: anyone could stop the proxy" -}}
{{- end -}}
{{- if and .Values.tls.clientCertificates (not .Values.tls.secretName) -}}
  {{- fail "tls.clientCertificates needs tls.secretName" -}}
{{- end -}}
{{- if and (eq .Values.workers.foundBy "disagg_cluster") (not .Values.config.disagg_cluster) -}}
  {{- fail "workers.foundBy: disagg_cluster needs config.disagg_cluster" -}}
{{- end -}}
{{- $uri := dig "cluster_uri" "" (default (dict) .Values.config.disagg_cluster) -}}
{{- if and (hasPrefix "http" $uri) (gt ($most | int) 1) -}}
  {{- fail "config.disagg_cluster: with an http uri the storage is that of one pod, and the others would know no workers: use an etcd, or one replica" -}}
{{- end -}}
{{- $domains := dict -}}
{{- range .Values.workers.computeDomains }}{{ $_ := set $domains .name true }}{{ end -}}
{{- $names := dict -}}
{{- range $role := list "context" "generation" -}}
  {{- range (get $.Values.workers $role) -}}
    {{- if hasKey $names .name }}{{ fail (printf "workers: two groups are called %q" .name) }}{{ end -}}
    {{- $_ := set $names .name true -}}
    {{- $group := include "disagg-proxy.group" (dict "root" $ "role" $role "group" .) | fromYaml -}}
    {{- if not $group.model }}{{ fail (printf "workers.%s: group %q has no model, nor have workers.defaults" $role .name) }}{{ end -}}
    {{- if and $group.scaled (eq $.Values.workers.foundBy "list") -}}
      {{- fail (printf "workers.%s: group %q: a list knows no workers that something else scales; choose another workers.foundBy" $role .name) -}}
    {{- end -}}
    {{- if and $group.nodeLabel (or $group.domain (ne $.Values.workers.foundBy "kubernetes")) -}}
      {{- fail (printf "workers.%s: group %q: nodeLabel needs workers.foundBy: kubernetes, and no domain" $role .name) -}}
    {{- end -}}
    {{- if and $group.computeDomain (not (hasKey $domains $group.computeDomain)) -}}
      {{- fail (printf "workers.%s: group %q: workers.computeDomains has none called %q" $role .name $group.computeDomain) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
