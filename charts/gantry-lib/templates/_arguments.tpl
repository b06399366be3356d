{{/*
Every template of this library takes the root context, `.`, or a dict of
  root     the root context
  values   values that win over those of the library, for charts with several kinds of pods or an alias of the dependency
  spec     (gantry-lib.podSpec alone) the pod's spec
*/}}

{{/* The root context of what a template was given. */}}
{{- define "gantry-lib.root" -}}
{{- if not (or (hasKey . "Values") (hasKey . "root")) }}
{{- fail "gantry-lib: templates take the root context, or (dict \"root\" $ \"values\" ...)" }}
{{- end }}
{{- end }}

{{/* The values of what a template was given, as YAML. */}}
{{- define "gantry-lib.values" -}}
{{- include "gantry-lib.root" . }}
{{- $root := .root | default . }}
{{- $defaults := index $root.Values "gantry-lib" | default dict }}
{{- $values := mergeOverwrite (deepCopy $defaults) (deepCopy (.values | default dict)) }}
{{- if not (hasKey $values "authentication") }}
{{- fail "gantry-lib: its values are not under `gantry-lib`: where the dependency has an alias, call with (dict \"root\" $ \"values\" .Values.<alias>)" }}
{{- end }}
{{- toYaml $values }}
{{- end }}

{{/* registry/repository:tag or @digest, of a dict with these. */}}
{{- define "gantry-lib.image" -}}
{{- if not (and .repository (or .tag .digest)) }}
{{- fail "gantry-lib: image.repository, or image.tag and image.digest, are empty" }}
{{- end }}
{{- with .registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{/* Begins the names of what the templates create. */}}
{{- define "gantry-lib.fullname" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $root := .root | default . }}
{{- include "gantry-lib.cut" (list 45 ($values.fullnameOverride | default (printf "%s-gantry" $root.Release.Name))) }}
{{- end }}

{{- define "gantry-lib.namespace" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $root := .root | default . }}
{{- $values.namespaceOverride | default $root.Release.Namespace }}
{{- end }}

{{/* Labels of what the templates create, besides pods. */}}
{{- define "gantry-lib.labels" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $root := .root | default . -}}
app.kubernetes.io/name: gantry-sidecar
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: sidecar
app.kubernetes.io/part-of: gantry
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- with $values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels for the metadata of pods with a sidecar: the PodMonitor and the NetworkPolicy select by them. */}}
{{- define "gantry-lib.podLabels" -}}
gantry.dev/sidecar: "true"
{{- end }}

{{/* Annotations for the metadata of pods with a sidecar; may be empty. */}}
{{- define "gantry-lib.podAnnotations" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- if $values.memlock.nriBytes }}
{{- /* The plugin renamed its annotation; each version of it reads one of the two. */}}
{{- range list "ulimits.noderesource.dev" "ulimits.nri.containerd.io" }}
{{ . }}/container.{{ $values.containerName }}: |
  - type: memlock
    soft: {{ int64 $values.memlock.nriBytes }}
    hard: {{ int64 $values.memlock.nriBytes }}
{{- end }}
{{- end }}
{{- end }}
