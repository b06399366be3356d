{{/*
The spec of a pod with everything put in: the sidecar behind the other init containers, volumes, claims, the group, and the
mount and environment of the workload's containers. Takes a dict with "spec"; without one it is a patch.
*/}}
{{- define "gantry-lib.podSpec" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $spec := deepCopy (.spec | default dict) }}
{{- $sidecar := include "gantry-lib.sidecar" . | fromYaml }}
{{- range $each := concat ($spec.initContainers | default list) ($spec.containers | default list) }}
{{- if eq $each.name $values.containerName }}
{{- fail (printf "gantry-lib: the pod has a container %s already" $each.name) }}
{{- end }}
{{- /* Other init containers have ended before the sidecar starts. */}}
{{- if or (eq (dig "restartPolicy" "" $each) "Always") (has $each ($spec.containers | default list)) }}
{{- include "gantry-lib.checkContainerPorts" (list $each $sidecar) }}
{{- end }}
{{- end }}
{{- $init := $spec.initContainers | default list }}
{{- with include "gantry-lib.nixlPlugin" . | fromYaml }}
{{- $init = append $init . }}
{{- end }}
{{- $_ := set $spec "initContainers" (append $init $sidecar) }}
{{- $_ := set $spec "volumes" (concat ($spec.volumes | default list) (include "gantry-lib.volumes" . | fromYamlArray)) }}
{{- with include "gantry-lib.claims" . | fromYamlArray }}
{{- $named := list }}
{{- range $spec.resourceClaims | default list }}
{{- $named = append $named .name }}
{{- end }}
{{- $claims := $spec.resourceClaims | default list }}
{{- range . }}
{{- if not (has .name $named) }}
{{- $claims = append $claims . }}
{{- end }}
{{- end }}
{{- $_ := set $spec "resourceClaims" $claims }}
{{- end }}
{{- $security := $spec.securityContext | default dict }}
{{- $groups := $security.supplementalGroups | default list }}
{{- $_ := set $security "supplementalGroups" (append $groups $values.supplementalGroup | uniq) }}
{{- $_ := set $spec "securityContext" $security }}
{{- if $values.shareProcessNamespace }}
{{- $_ := set $spec "shareProcessNamespace" true }}
{{- end }}
{{- if $values.terminationGracePeriodSeconds }}
{{- $_ := set $spec "terminationGracePeriodSeconds" $values.terminationGracePeriodSeconds }}
{{- end }}
{{- if $spec.containers }}
{{- $names := list }}
{{- range $each := $spec.containers }}
{{- $names = append $names $each.name }}
{{- if or (not $values.workloadContainers) (has $each.name $values.workloadContainers) }}
{{- $_ := set $each "env" (concat (include "gantry-lib.workload.env" $ | fromYamlArray) ($each.env | default list)) }}
{{- $_ := set $each "volumeMounts" (concat ($each.volumeMounts | default list) (include "gantry-lib.workload.volumeMounts" $ | fromYamlArray)) }}
{{- end }}
{{- end }}
{{- range $values.workloadContainers }}
{{- if not (has . $names) }}
{{- fail (printf "gantry-lib: workloadContainers names %s, and the pod has %s" . (join ", " $names)) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $spec }}
{{- end }}
