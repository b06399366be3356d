{{/* What the schema cannot say of values, and what makes valid names of them. */}}

{{/* A name of at most so many letters that ends as Kubernetes wants it. Takes (list length name). */}}
{{- define "gantry-lib.cut" -}}
{{- regexReplaceAll "[-._]+$" (trunc (index . 0) (index . 1)) "" }}
{{- end }}

{{/* A version as the value of a label. */}}
{{- define "gantry-lib.labelValue" -}}
{{- include "gantry-lib.cut" (list 63 (. | replace "+" "_")) }}
{{- end }}

{{/* address:port; an IPv6 address gets its brackets. Takes (list address port). */}}
{{- define "gantry-lib.hostPort" -}}
{{- $address := index . 0 }}
{{- if and (contains ":" $address) (not (hasPrefix "[" $address)) }}
{{- $address = printf "[%s]" $address }}
{{- end }}
{{- printf "%s:%d" $address (int (index . 1)) }}
{{- end }}

{{/* Ends the rendering where two ports are one, and where no probe arrives. Takes (list name-of-the-address address {name: port}). */}}
{{- define "gantry-lib.checkListen" -}}
{{- $ports := index . 2 }}
{{- $taken := dict }}
{{- range $name := keys $ports | sortAlpha }}
{{- $port := index $ports $name | int | toString }}
{{- with index $taken $port }}
{{- fail (printf "%s and %s are both %s: each needs a port of its own" . $name $port) }}
{{- end }}
{{- $_ := set $taken $port $name }}
{{- end }}
{{- if regexMatch "^(127\\.|\\[?::1\\]?$)" (index . 1) }}
{{- fail (printf "%s is %s, which only the pod itself reaches: the kubelet's probes come to the pod's address; name 0.0.0.0 or ::" (index . 0) (index . 1)) }}
{{- end }}
{{- end }}

{{/* Ends the rendering where a flag would be given twice, which the programs refuse. Takes (list arguments extraArgs). */}}
{{- define "gantry-lib.checkExtraArgs" -}}
{{- $given := list }}
{{- range index . 0 }}
{{- $given = append $given (splitList "=" . | first) }}
{{- end }}
{{- range index . 1 }}
{{- $flag := splitList "=" . | first }}
{{- if and (hasPrefix "--" $flag) (has $flag $given) }}
{{- fail (printf "extraArgs has %s, which the chart gives already: set the value that it is made of" $flag) }}
{{- end }}
{{- $given = append $given $flag }}
{{- end }}
{{- end }}

{{/* Ends the rendering where a container of the pod has a port of the sidecar. Takes (list container sidecar). */}}
{{- define "gantry-lib.checkContainerPorts" -}}
{{- $container := index . 0 }}
{{- range $own := (index . 1).ports }}
{{- range $port := $container.ports | default list }}
{{- if and (eq (int $port.containerPort) (int $own.containerPort)) (eq ($port.protocol | default "TCP") "TCP") }}
{{- fail (printf "gantry-lib: the container %s and the sidecar have the port %d both, and the containers of a pod share one address: see `listen`" $container.name (int $port.containerPort)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
