{{- define "gantry.name" -}}
{{- include "gantry-lib.cut" (list 40 (.Values.nameOverride | default .Chart.Name)) }}
{{- end }}

{{/* At most 45 letters, so that what is put behind it fits into 63. */}}
{{- define "gantry.fullname" -}}
{{- $name := include "gantry.name" . }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- include "gantry-lib.cut" (list 45 (.Values.fullnameOverride | default $full)) }}
{{- end }}

{{- define "gantry.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* For objects of the cluster: releases of one name may be in several namespaces. */}}
{{- define "gantry.clusterName" -}}
{{- include "gantry.fullname" . }}.{{ include "gantry.namespace" . }}
{{- end }}

{{- define "gantry.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gantry.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: device-plugin
{{- end }}

{{- define "gantry.labels" -}}
{{ include "gantry.selectorLabels" . }}
app.kubernetes.io/version: {{ include "gantry-lib.labelValue" .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gantry
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ include "gantry-lib.labelValue" (printf "%s-%s" .Chart.Name .Chart.Version) | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
The metadata of an object. Takes a dict of root, and optionally suffix of the name, labels, annotations, namespace; cluster: the
object is one of the cluster; component: of what it is a part, if not of the device plugin. A pod that had the plugin's
component would be taken for the daemon set's.
*/}}
{{- define "gantry.metadata" -}}
{{- $root := .root }}
metadata:
  name: "{{ if .cluster }}{{ include "gantry.clusterName" $root }}{{ else }}{{ include "gantry.fullname" $root }}{{ end }}{{ with .suffix }}-{{ . }}{{ end }}"
  {{- if not .cluster }}
  namespace: {{ .namespace | default (include "gantry.namespace" $root) | quote }}
  {{- end }}
  labels:
    {{- $labels := include "gantry.labels" $root | fromYaml }}
    {{- toYaml (merge (ternary (dict "app.kubernetes.io/component" .component) (dict) (hasKey . "component")) $labels) | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) (.annotations | default dict) $root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "gantry.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "gantry.fullname" .) "default") }}
{{- end }}

{{- define "gantry.image" -}}
{{- include "gantry-lib.image" (merge (dict "tag" (.Values.image.tag | default .Chart.AppVersion)) .Values.image) }}
{{- end }}

{{/* The sidecar's image as YAML: what is empty of it is the plugin's. A tag or a repository of its own is not overruled by a digest. */}}
{{- define "gantry.sidecarImage" -}}
{{- $own := .Values.sidecar.image }}
{{- $digest := ternary $own.digest .Values.image.digest (not (empty (or $own.digest $own.tag $own.repository))) }}
registry: {{ $own.registry | default .Values.image.registry | quote }}
repository: {{ $own.repository | default .Values.image.repository | quote }}
tag: {{ $own.tag | default .Values.image.tag | default .Chart.AppVersion | quote }}
digest: {{ $digest | quote }}
pullPolicy: {{ $own.pullPolicy | default .Values.image.pullPolicy }}
{{- end }}

{{/* Follows the resource, so that two releases on a node have two folders. */}}
{{- define "gantry.peerDir" -}}
{{- .Values.peerDir | default (printf "/run/gantry/%s" (.Values.resource | replace "/" "-")) }}
{{- end }}
