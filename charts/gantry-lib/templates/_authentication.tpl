{{/* How peers over TCP know each other: certificates, token, or none where nobody listens. */}}
{{- define "gantry-lib.authentication.mode" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $root := .root | default . }}
{{- $mode := $values.authentication.mode }}
{{- $certificates := $values.authentication.certificates }}
{{- $manager := $root.Capabilities.APIVersions.Has "cert-manager.io/v1" }}
{{- if not $values.peers.tcp }}
{{- $mode = "none" }}
{{- else if eq $mode "auto" }}
{{- $named := or $certificates.existingSecret $certificates.issuerRef }}
{{- $mode = ternary "certificates" "token" (or $manager $named | empty | not) }}
{{- end }}
{{- if and (eq $mode "certificates") (not $certificates.existingSecret) (not $manager) }}
{{- fail "gantry-lib: authentication by certificates needs cert-manager in the cluster (cert-manager.io/v1), or authentication.certificates.existingSecret" }}
{{- end }}
{{- if and (ne $mode "certificates") $values.authentication.rules }}
{{- fail "gantry-lib: authentication.rules are about names in certificates; they do nothing for a token" }}
{{- end }}
{{- if and (ne $mode "certificates") (index $values.flags "data-tls") }}
{{- fail "gantry-lib: flags.data-tls needs authentication by certificates" }}
{{- end }}
{{- $mode }}
{{- end }}

{{- define "gantry-lib.authentication.certificateSecret" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $values.authentication.certificates.existingSecret | default (printf "%s-peer-certificate" (include "gantry-lib.fullname" .)) }}
{{- end }}

{{- define "gantry-lib.authentication.tokenSecret" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $values.authentication.token.existingSecret | default (printf "%s-peer-token" (include "gantry-lib.fullname" .)) }}
{{- end }}

{{/* The sidecar's arguments, a list. */}}
{{- define "gantry-lib.authentication.args" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $certificates := $values.authentication.certificates }}
{{- $mode := include "gantry-lib.authentication.mode" . }}
{{- if eq $mode "certificates" }}
{{- $all := printf "spiffe://%s/ns/$(GANTRY_POD_NAMESPACE)/*" $certificates.trustDomain -}}
- --peer-tls-cert=/etc/gantry/peer-certificate/tls.crt
- --peer-tls-key=/etc/gantry/peer-certificate/tls.key
- --peer-tls-ca=/etc/gantry/peer-certificate/ca.crt
- {{ printf "--peer-tls-names=%s" (join "," ($certificates.peerNames | default (list $all))) | quote }}
{{- if $values.authentication.rules }}
- --peer-rules=/etc/gantry/peer-rules/rules
{{- end }}
{{- else if eq $mode "token" -}}
- --peer-token-file=/etc/gantry/peer-token/token
- --peer-plaintext
{{- end }}
{{- end }}

{{- define "gantry-lib.authentication.mounts" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $mode := include "gantry-lib.authentication.mode" . }}
{{- if eq $mode "certificates" -}}
- name: gantry-peer-certificate
  mountPath: /etc/gantry/peer-certificate
  readOnly: true
{{- if $values.authentication.rules }}
- name: gantry-peer-rules
  mountPath: /etc/gantry/peer-rules
  readOnly: true
{{- end }}
{{- else if eq $mode "token" -}}
- name: gantry-peer-token
  mountPath: /etc/gantry/peer-token
  readOnly: true
{{- end }}
{{- end }}

{{/* The sidecar alone mounts these; it is not root, and its group is not known to the kubelet without fsGroup: mode 0444. */}}
{{- define "gantry-lib.authentication.volumes" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $mode := include "gantry-lib.authentication.mode" . }}
{{- if eq $mode "certificates" -}}
- name: gantry-peer-certificate
  secret:
    secretName: {{ include "gantry-lib.authentication.certificateSecret" . | quote }}
    defaultMode: 292
{{- if $values.authentication.rules }}
- name: gantry-peer-rules
  configMap:
    name: {{ include "gantry-lib.fullname" . }}-peer-rules
    defaultMode: 292
{{- end }}
{{- else if eq $mode "token" -}}
- name: gantry-peer-token
  secret:
    secretName: {{ include "gantry-lib.authentication.tokenSecret" . | quote }}
    defaultMode: 292
    items:
      - key: {{ $values.authentication.token.key | quote }}
        path: token
{{- end }}
{{- end }}

{{/* The objects that the sidecars of a release need: a certificate or a token, the rules, the policy. Whole manifests. */}}
{{- define "gantry-lib.resources" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $mode := include "gantry-lib.authentication.mode" . }}
{{- if and (eq $mode "certificates") (not $values.authentication.certificates.existingSecret) }}
{{ include "gantry-lib.authentication.certificate" . }}
{{- else if and (eq $mode "token") (not $values.authentication.token.existingSecret) }}
{{ include "gantry-lib.authentication.token" . }}
{{- end }}
{{- if $values.authentication.rules }}
---
apiVersion: v1
kind: ConfigMap
{{ include "gantry-lib.metadata" (dict "context" . "suffix" "peer-rules") }}
data:
  rules: {{ $values.authentication.rules | toJson }}
{{- end }}
{{- if $values.networkPolicy.enabled }}
{{ include "gantry-lib.networkPolicy" . }}
{{- end }}
{{- end }}

{{- define "gantry-lib.metadata" -}}
metadata:
  name: {{ include "gantry-lib.fullname" .context }}-{{ .suffix }}
  namespace: {{ include "gantry-lib.namespace" .context | quote }}
  labels:
    {{- include "gantry-lib.labels" .context | nindent 4 }}
{{- end }}

{{/* A token that is there stays: pods that run have it. Where `helm template` applies the chart, name an existing secret. */}}
{{- define "gantry-lib.authentication.token" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $key := $values.authentication.token.key }}
{{- $there := lookup "v1" "Secret" (include "gantry-lib.namespace" .) (include "gantry-lib.authentication.tokenSecret" .) | default dict }}
---
apiVersion: v1
kind: Secret
{{ include "gantry-lib.metadata" (dict "context" . "suffix" "peer-token") }}
    {{- include "gantry-lib.authentication.secretLabel" . | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep
type: Opaque
data:
  {{ $key | quote }}: {{ index ($there.data | default dict) $key | default (randAlphaNum 48 | b64enc) | quote }}
{{- end }}

{{/*
By it the secrets are found that stay when their release goes. Not the release's own labels: cert-manager makes the secrets, and who
applies releases and tells by these labels what is theirs (Argo CD) would remove what is in no manifest.
*/}}
{{- define "gantry-lib.authentication.secretLabel" -}}
gantry.dev/secret-of: {{ (.root | default .).Release.Name | quote }}
{{- end }}

{{- define "gantry-lib.authentication.secretTemplate" -}}
labels:
  {{- include "gantry-lib.authentication.secretLabel" . | nindent 2 }}
  {{- with (include "gantry-lib.values" . | fromYaml).commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "gantry-lib.authentication.certificate" -}}
{{- $certificates := (include "gantry-lib.values" . | fromYaml).authentication.certificates }}
{{- $name := include "gantry-lib.fullname" . }}
{{- $issuer := $certificates.issuerRef }}
{{- if not $issuer }}
{{- $issuer = dict "name" (printf "%s-peer-authority" $name) "kind" "Issuer" "group" "cert-manager.io" }}
---
apiVersion: cert-manager.io/v1
kind: Issuer
{{ include "gantry-lib.metadata" (dict "context" . "suffix" "peer-self-signed") }}
spec:
  selfSigned: {}
---
apiVersion: cert-manager.io/v1
kind: Certificate
{{ include "gantry-lib.metadata" (dict "context" . "suffix" "peer-authority") }}
spec:
  isCA: true
  commonName: {{ printf "%s peers" $name | trunc 64 | quote }}
  secretName: {{ $name }}-peer-authority
  secretTemplate:
    {{- include "gantry-lib.authentication.secretTemplate" . | nindent 4 }}
  revisionHistoryLimit: 1
  duration: 87600h
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Never
  issuerRef:
    name: {{ $name }}-peer-self-signed
    kind: Issuer
    group: cert-manager.io
---
apiVersion: cert-manager.io/v1
kind: Issuer
{{ include "gantry-lib.metadata" (dict "context" . "suffix" "peer-authority") }}
spec:
  ca:
    secretName: {{ $name }}-peer-authority
{{- end }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
{{ include "gantry-lib.metadata" (dict "context" . "suffix" "peer-certificate") }}
spec:
  secretName: {{ include "gantry-lib.authentication.certificateSecret" . | quote }}
  secretTemplate:
    {{- include "gantry-lib.authentication.secretTemplate" . | nindent 4 }}
  revisionHistoryLimit: 1
  duration: {{ $certificates.duration }}
  renewBefore: {{ $certificates.renewBefore }}
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Always
  usages: [digital signature, server auth, client auth]
  uris:
    - {{ printf "spiffe://%s/ns/%s/gantry/%s" $certificates.trustDomain (include "gantry-lib.namespace" .) $name | quote }}
  issuerRef:
    {{- toYaml $issuer | nindent 4 }}
{{- end }}
