{{/* The configuration file: .Values.config, and what other values imply. As a YAML text. */}}
{{- define "disagg-proxy.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $proxy := default (dict) $config.proxy -}}
{{- $implied := include "disagg-proxy.impliedKeys" . | fromYaml -}}
{{- range $key, $_ := $implied -}}
  {{- if hasKey $proxy $key -}}
    {{- fail (printf "config.proxy.%s: another value of the chart (admin, a secret, TLS) sets it; leave one of them out" $key) -}}
  {{- end -}}
{{- end -}}
{{- $proxy = merge $proxy $implied -}}
{{- with include "disagg-proxy.sources" . | fromYamlArray -}}
  {{- $_ := set $proxy "discovery" (concat (default (list) $proxy.discovery) .) -}}
{{- end -}}
{{- $_ := set $config "proxy" $proxy -}}
{{- toYaml $config -}}
{{- end }}

{{/* Keys of `proxy` that other values than .Values.config imply. */}}
{{- define "disagg-proxy.impliedKeys" -}}
{{- $secrets := "/etc/disagg-proxy-secrets" -}}
{{- if .Values.admin.enabled }}
admin_listen: {{ .Values.admin.listen | quote }}
{{- if .Values.admin.tokenSecret.name }}
admin_token_file: {{ $secrets }}/admin/{{ .Values.admin.tokenSecret.key }}
{{- end }}
{{- end }}
{{- if .Values.apiKeysSecret.name }}
api_keys_file: {{ $secrets }}/api-keys/{{ .Values.apiKeysSecret.key }}
{{- end }}
{{- if .Values.workerApiKeySecret.name }}
worker_api_key_file: {{ $secrets }}/worker-api-key/{{ .Values.workerApiKeySecret.key }}
{{- end }}
{{- if .Values.tls.secretName }}
tls_certfile: {{ $secrets }}/tls/tls.crt
tls_keyfile: {{ $secrets }}/tls/tls.key
{{- if .Values.tls.clientCertificates }}
tls_client_ca: {{ $secrets }}/tls/ca.crt
{{- end }}
{{- end }}
{{- if .Values.workerTls.caSecret }}
worker_tls_ca: {{ $secrets }}/worker-ca/ca.crt
{{- end }}
{{- if .Values.workerTls.certificateSecret }}
worker_tls_certfile: {{ $secrets }}/worker-tls/tls.crt
worker_tls_keyfile: {{ $secrets }}/worker-tls/tls.key
{{- end }}
{{- end }}

{{/* Secrets that are mounted: {folder below /etc/disagg-proxy-secrets: name of the Secret}. */}}
{{- define "disagg-proxy.secretFolders" -}}
{{- with ternary .Values.admin.tokenSecret.name "" .Values.admin.enabled }}
admin: {{ . }}
{{- end }}
{{- with .Values.apiKeysSecret.name }}
api-keys: {{ . }}
{{- end }}
{{- with .Values.workerApiKeySecret.name }}
worker-api-key: {{ . }}
{{- end }}
{{- with .Values.tls.secretName }}
tls: {{ . }}
{{- end }}
{{- with .Values.workerTls.caSecret }}
worker-ca: {{ . }}
{{- end }}
{{- with .Values.workerTls.certificateSecret }}
worker-tls: {{ . }}
{{- end }}
{{- end }}

{{/* Seconds from the beginning of a pod's end to SIGKILL. */}}
{{- define "disagg-proxy.gracePeriod" -}}
{{- $proxy := default (dict) .Values.config.proxy -}}
{{- /* The proxy's own defaults, where somebody has removed the chart's. */ -}}
{{- $grace := ternary $proxy.drain_grace 5 (hasKey $proxy "drain_grace") -}}
{{- $timeout := ternary $proxy.drain_timeout 600 (hasKey $proxy "drain_timeout") -}}
{{- add .Values.shutdown.preStopSeconds (ceil $grace) (ceil $timeout) .Values.shutdown.marginSeconds -}}
{{- end }}
