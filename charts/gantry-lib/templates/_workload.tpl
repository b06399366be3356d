{{/* What the workload's container needs: where the sidecar is. The client takes the folder, gantryctl the socket. */}}
{{- define "gantry-lib.workload.env" -}}
{{- $values := include "gantry-lib.values" . | fromYaml -}}
- name: GANTRY_RUN_DIR
  value: {{ $values.runDir | quote }}
- name: GANTRY_API_SOCKET
  value: {{ printf "%s/api.sock" $values.runDir | quote }}
{{- end }}

{{- define "gantry-lib.workload.volumeMounts" -}}
{{- $values := include "gantry-lib.values" . | fromYaml -}}
- name: gantry-run
  mountPath: {{ $values.runDir | quote }}
{{- if $values.nixlPlugin.enabled }}
- name: gantry-nixl
  mountPath: {{ printf "%s/libplugin_GANTRY.so" $values.nixlPlugin.path | quote }}
  subPath: libplugin_GANTRY.so
  readOnly: true
{{- end }}
{{- end }}

{{/* Both, as keys of a container that has none of its own. */}}
{{- define "gantry-lib.workload" -}}
env:
  {{- include "gantry-lib.workload.env" . | nindent 2 }}
volumeMounts:
  {{- include "gantry-lib.workload.volumeMounts" . | nindent 2 }}
{{- end }}
