{{/* rdsd.tls is what the chart writes into rdsd.toml for tls. */}}
{{- define "rdsd.tls" -}}
[tls]
{{- if .Values.tls.enabled }}
cert = "/tls/tls.crt"
key = "/tls/tls.key"
ca = "/tls/ca.crt"
{{- with .Values.tls.names }}
names = {{ toJson . }}
{{- end }}
{{- else }}
mode = "off"
{{- end }}
{{- end }}

{{/* rdsd.checks fails with what values.schema.json cannot say. */}}
{{- define "rdsd.checks" -}}
{{- with .Values.tls }}
{{- if and .enabled .secret .csi }}
{{- fail "tls.secret and tls.csi are both set: nodes have one folder of certificates, remove one of them" }}
{{- end }}
{{- if and .enabled .secret (not .names) }}
{{- fail "tls.secret is one certificate for all nodes, so it cannot name their addresses: say in tls.names which name it carries, as in [\"10.0.0.0/24 spiffe://example.org/rdsd\"]" }}
{{- end }}
{{- end }}
{{- with fromToml .Values.config }}
{{- if hasKey . "Error" }}
{{- fail (printf "config is not TOML: %v" .Error) }}
{{- end }}
{{- end }}
{{- with .Values.metrics.serviceMonitor }}
{{- if and .enabled (not $.Values.tls.enabled) }}
{{- fail "metrics.serviceMonitor.enabled needs tls.enabled: away from loopback rdsd serves metrics over HTTPS, with its certificate" }}
{{- end }}
{{- if and .enabled (not .tlsConfig) }}
{{- fail "metrics.serviceMonitor.enabled needs metrics.serviceMonitor.tlsConfig: rdsd answers only scrapers that show a certificate of its authority" }}
{{- end }}
{{- end }}
{{- end }}

{{/* rdsd.probe asks for path where the kubelet may: over HTTP on the node's loopback, or by the
control socket if metrics are served to clients with certificates. */}}
{{- define "rdsd.probe" -}}
{{- if .root.Values.metrics.serviceMonitor.enabled -}}
exec: {command: [/usr/bin/rdsctl, check, daemon, -warn, 1s]}   # a warning would be a failure
timeoutSeconds: 5
{{- else -}}
httpGet: {host: 127.0.0.1, port: {{ .root.Values.metrics.port }}, path: {{ .path }}}
{{- end }}
{{- end }}
