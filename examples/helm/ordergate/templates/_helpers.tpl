{{- define "name" -}}
{{ if contains "ordergate" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-ordergate{{ end }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: ordergate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hardened" -}}
{ runAsUser: 65532, runAsGroup: 65532, runAsNonRoot: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: { drop: [ALL] } }
{{- end }}

{{- define "contradictions" -}}
{{- $file := fromYaml (required "config: give the file: --set-file config=ordergate.yaml" .Values.config) }}
{{- if or $file.Error (not $file.rules) }}
{{- fail (printf "config: has no rules: give the file, not its name: --set-file config=ordergate.yaml %s" (default "" $file.Error)) }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (eq (dig "redis" "mode" "" $file) "embedded") }}
{{- fail "replicas: redis.mode embedded is for one ordergate: give a Redis, or replicas=1" }}
{{- end }}
{{- if eq .Values.mode "sidecar" }}
{{- if and (not .Values.sidecar.containers) (hasPrefix "127." .Values.sidecar.backend) }}
{{- fail "sidecar.containers: there is no order service at sidecar.backend: give its containers, or its host and port" }}
{{- end }}
{{- if or .Values.shared.tls .Values.shared.insecure }}
{{- fail "shared: is for mode=shared" }}
{{- end }}
{{- else }}
{{- if .Values.sidecar.containers }}
{{- fail "sidecar.containers: is for mode=sidecar" }}
{{- end }}
{{- if eq (empty .Values.shared.tls) (not .Values.shared.insecure) }}
{{- fail "shared.tls: give the Secret with certificates, or shared.insecure=true, not both" }}
{{- end }}
{{- if and .Values.shared.insecure (not (and .Values.networkPolicy.enabled .Values.networkPolicy.clients)) }}
{{- fail "networkPolicy.clients: without TLS, name the Pods that may take locks: those of the gateway" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What all containers with the program have. */}}
{{- define "ordergate" -}}
image: {{ quote .Values.image }}
securityContext: {{ include "hardened" . }}
env:
{{- if eq .Values.mode "sidecar" }}
- { name: ORDERGATE_LISTEN_AUTHZ, value: "unix:/run/ordergate/authz.sock" }
- { name: ORDERGATE_LISTEN_PROC, value: "unix:/run/ordergate/proc.sock" }
{{- else }}
- { name: ORDERGATE_LISTEN_AUTHZ, value: "0.0.0.0:9191" }
- { name: ORDERGATE_LISTEN_PROC, value: "0.0.0.0:9192" }
- { name: ORDERGATE_LISTEN_HTTP, value: "0.0.0.0:9193" }
{{- if .Values.shared.tls }}
- { name: ORDERGATE_LISTEN_TLS_CERT, value: /etc/ordergate-tls/tls.crt }
- { name: ORDERGATE_LISTEN_TLS_KEY, value: /etc/ordergate-tls/tls.key }
- { name: ORDERGATE_LISTEN_TLS_CA, value: /etc/ordergate-tls/ca.crt }
{{- else }}
- { name: ORDERGATE_LISTEN_INSECURE, value: "true" }
{{- end }}
{{- end }}
- { name: ORDERGATE_LISTEN_ADMIN, value: "0.0.0.0:9194" }
- { name: ORDERGATE_LISTEN_TOKEN_FILE, value: /etc/ordergate-secret/token }
volumeMounts:
- { name: config, mountPath: /etc/ordergate, readOnly: true }
- { name: secret, mountPath: /etc/ordergate-secret, readOnly: true }
{{- if .Values.shared.tls }}
- { name: tls, mountPath: /etc/ordergate-tls, readOnly: true }
{{- end }}
- { name: run, mountPath: /run/ordergate }
- { name: state, mountPath: /var/lib/ordergate }
{{- end }}

{{- /* The container that serves. When Envoy has ended, nothing new comes: no delay. */}}
{{- define "serve" -}}
name: ordergate
args: [serve, --config, /etc/ordergate/ordergate.yaml{{ if eq .Values.mode "sidecar" }}, --drain-delay, 0s{{ end }}]
{{ include "ordergate" . }}
ports:
{{- if eq .Values.mode "shared" }}
- { name: authz, containerPort: 9191 }
- { name: proc, containerPort: 9192 }
- { name: checks, containerPort: 9193 }
{{- end }}
- { name: admin, containerPort: 9194 }
startupProbe: { httpGet: { path: /healthz, port: admin }, periodSeconds: 1, failureThreshold: 60 }
livenessProbe: { httpGet: { path: /healthz, port: admin }, timeoutSeconds: 5 }
readinessProbe: { httpGet: { path: /readyz, port: admin }, periodSeconds: 2 }
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- end }}
