{{/*
Guards the sidecar's ports and no others: a policy that selects a pod closes what it does not name, so the ports around the
sidecar's are opened again.
*/}}
{{- define "gantry-lib.networkPolicy" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $listen := $values.listen }}
{{- $guarded := list (int $listen.metricsPort) }}
{{- if $values.peers.tcp }}
{{- $guarded = concat $guarded (list (int $listen.peerPort) (int $listen.dataPort)) }}
{{- end }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
{{ include "gantry-lib.metadata" (dict "context" . "suffix" "peers") }}
spec:
  podSelector:
    matchLabels:
      {{- include "gantry-lib.podLabels" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    {{- if $values.peers.tcp }}
    - from:
        {{- toYaml ($values.networkPolicy.peersFrom | default (list (dict "podSelector" (dict "matchLabels" (include "gantry-lib.podLabels" . | fromYaml))))) | nindent 8 }}
      ports:
        - port: {{ $listen.peerPort }}
          protocol: TCP
        - port: {{ $listen.dataPort }}
          protocol: TCP
    {{- end }}
    - ports:
        - port: {{ $listen.metricsPort }}
          protocol: TCP
      {{- with $values.networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    - ports:
        {{- $first := 1 }}
        {{- range $port := include "gantry-lib.sorted" $guarded | fromYamlArray }}
        {{- $port = int $port }}
        {{- if lt $first $port }}
        - port: {{ $first }}
          endPort: {{ sub $port 1 }}
          protocol: TCP
        {{- end }}
        {{- $first = add1 $port }}
        {{- end }}
        {{- if le (int $first) 65535 }}
        - port: {{ $first }}
          endPort: 65535
          protocol: TCP
        {{- end }}
        - port: 1
          endPort: 65535
          protocol: UDP
        - port: 1
          endPort: 65535
          protocol: SCTP
{{- end }}

{{/* Whole numbers in order, each once: sortAlpha sorts texts, so they are padded. */}}
{{- define "gantry-lib.sorted" -}}
{{- $padded := list }}
{{- range . }}
{{- $padded = append $padded (printf "%05d" (int .)) }}
{{- end }}
{{- range $padded | uniq | sortAlpha }}
- {{ . | trimPrefix "0" | trimPrefix "0" | trimPrefix "0" | trimPrefix "0" }}
{{- end }}
{{- end }}
