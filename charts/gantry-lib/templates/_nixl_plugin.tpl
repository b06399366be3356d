{{/*
The init container that copies NIXL's backend into a volume, an entry of initContainers; empty where it is not enabled. The
workload's containers mount the file into the folder of plugins of their own NIXL.
*/}}
{{- define "gantry-lib.nixlPlugin" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- if $values.nixlPlugin.enabled }}
{{- if not $values.nixlPlugin.path }}
{{- fail "gantry-lib: nixlPlugin.path is empty: name the folder of plugins of the NIXL in the workload's image" }}
{{- end -}}
name: gantry-nixl-plugin
image: {{ include "gantry-lib.image" $values.image | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
command: [gantryctl, nixl-plugin, /gantry-nixl]
resources:
  requests:
    cpu: 10m
    memory: 32Mi
  limits:
    memory: 128Mi
securityContext:
  {{- toYaml $values.securityContext | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  - name: gantry-nixl
    mountPath: /gantry-nixl
{{- end }}
{{- end }}
