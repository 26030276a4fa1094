{{- define "ccm.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ccm.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "ccm.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ccm.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ccm.selector" -}}
app.kubernetes.io/name: {{ include "ccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ccm.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- /* Annotations of an object, as a part of its metadata: those of all objects, and more of its own. */ -}}
{{- define "ccm.annotations" -}}
{{- with merge (dict) (default (dict) .more) .root.Values.commonAnnotations -}}
{{- dict "annotations" . | toYaml | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ccm.ownLabels" -}}
{{ include "ccm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: {{ .Values.cloudProvider }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Labels of an object: its own stand above those of all objects, each key once. */ -}}
{{- define "ccm.labelsAnd" -}}
{{- merge (dict) (default (dict) .more) .root.Values.commonLabels (include "ccm.ownLabels" .root | fromYaml) | toYaml }}
{{- end }}

{{- define "ccm.labels" -}}
{{- include "ccm.labelsAnd" (dict "root" .) }}
{{- end }}

{{- define "ccm.serviceAccount" -}}
{{- default (include "ccm.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "ccm.lease" -}}
{{- default (include "ccm.fullname" .) .Values.leaderElection.leaseName }}
{{- end }}

{{- define "ccm.leaseNamespace" -}}
{{- default (include "ccm.namespace" .) .Values.leaderElection.namespace }}
{{- end }}

{{- /* Names of objects outside of namespaces carry the namespace, so that releases do not clash. */ -}}
{{- define "ccm.clusterName" -}}
{{- printf "%s:%s" (include "ccm.namespace" .) (include "ccm.fullname" .) }}
{{- end }}

{{- define "ccm.image" -}}
{{- $name := .Values.image.repository -}}
{{- if .Values.image.slim }}{{ $name = printf "%s-%s" $name .Values.cloudProvider }}{{ end -}}
{{- if .Values.image.digest }}{{ printf "%s@%s" $name .Values.image.digest }}{{ else }}{{ printf "%s:%s" $name (default .Chart.AppVersion .Values.image.tag) }}{{ end }}
{{- end }}

{{- /* What the chart knows of the cloud: a part of files/providers.json, which follows from the descriptions of the providers. */ -}}
{{- define "ccm.cloud" -}}
{{- $known := .Files.Get "files/providers.json" | fromJson -}}
{{- if not (hasKey $known .Values.cloudProvider) }}
{{- fail (printf "cloudProvider is %q; set it to one of %s" .Values.cloudProvider (keys $known | sortAlpha | join ", ")) }}
{{- end }}
{{- /* helm lint goes on after a refusal. */ -}}
{{- $nothing := dict "credentials" list "controllers" list "readsSecrets" false "config" (dict "format" "" "file" "" "holdsCredentials" false "required" false "secretKeys" list) -}}
{{- get $known .Values.cloudProvider | default $nothing | toJson }}
{{- end }}

{{- /* Refuses a variable that is set twice: of two the API server keeps either, with a warning at most. */ -}}
{{- define "ccm.distinct" -}}
{{- $names := list "POD_NAMESPACE" -}}
{{- range (include "ccm.cloud" . | fromJson).credentials }}{{ with .env }}{{ $names = append $names . }}{{ end }}{{ end -}}
{{- range $name, $value := .Values.options }}{{ $names = append $names $name }}{{ end -}}
{{- range .Values.extraEnv -}}
{{- if has .name $names }}{{ fail (printf "extraEnv sets %s, which is set already by options, credentials or extraEnv; keep one" .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end }}

{{- define "ccm.secret" -}}
{{- default (printf "%s-credentials" (include "ccm.fullname" .)) .Values.credentials.existingSecret }}
{{- end }}

{{- /* The keys of the Secret by credential. A cloud config that holds credentials is one of them. */ -}}
{{- define "ccm.secretKeys" -}}
{{- $cloud := include "ccm.cloud" . | fromJson -}}
{{- $keys := dict -}}
{{- range $cloud.credentials }}{{ $_ := set $keys .name .key }}{{ end -}}
{{- if $cloud.config.holdsCredentials }}{{ $_ := set $keys "cloudConfig" $cloud.config.file }}{{ end -}}
{{- merge (dict) .Values.credentials.keys $keys | toJson }}
{{- end }}

{{- /* Whether the Secret holds the cloud config. One that may be left out is there where somebody gives it. */ -}}
{{- define "ccm.configInSecret" -}}
{{- $config := (include "ccm.cloud" . | fromJson).config -}}
{{- if and $config.holdsCredentials (or $config.required .Values.credentials.existingSecret (include "ccm.hasCloudConfig" .)) }}true{{ end }}
{{- end }}

{{- /* Optional credentials are mounted where any is given; the others always. */ -}}
{{- define "ccm.hasCredentials" -}}
{{- $cloud := include "ccm.cloud" . | fromJson -}}
{{- $needed := include "ccm.configInSecret" . -}}
{{- range $cloud.credentials }}{{ if not .optional }}{{ $needed = true }}{{ end }}{{ end -}}
{{- if or $needed .Values.credentials.existingSecret .Values.credentials.values }}true{{ end }}
{{- end }}

{{- define "ccm.hasCloudConfig" -}}
{{- if or .Values.cloudConfig .Values.extraCloudConfig }}true{{ end }}
{{- end }}

{{- /* The file of a cloud config that holds no secret. */ -}}
{{- define "ccm.hasCloudConfigMap" -}}
{{- $config := (include "ccm.cloud" . | fromJson).config -}}
{{- if and $config.format (not $config.holdsCredentials) (include "ccm.hasCloudConfig" .) }}true{{ end }}
{{- end }}

{{- define "ccm.cloudConfig" -}}
{{- if eq (include "ccm.cloud" . | fromJson).config.format "INI" }}
{{- range $section, $keys := .Values.cloudConfig }}
{{- /* Below a section with names, each name has keys of its own. */}}
{{- $plain := dict }}
{{- $sections := dict }}
{{- range $name, $below := $keys }}
{{- if kindIs "map" $below }}{{ $_ := set $sections (printf "%s \"%s\"" $section $name) $below }}{{ else }}{{ $_ := set $plain $name $below }}{{ end }}
{{- end }}
{{- if or $plain (not $sections) }}{{ $_ := set $sections $section $plain }}{{ end }}
{{- range $header, $keys := $sections }}
[{{ $header }}]
{{- range $key, $value := $keys }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
{{ $key }} = {{ toString . | replace "\\" "\\\\" | replace "\"" "\\\"" | replace "\n" "\\n" | printf "\"%s\"" }}
{{- end }}
{{- end }}
{{ end }}
{{- end }}
{{- else if .Values.cloudConfig }}
{{- toYaml .Values.cloudConfig }}
{{ end }}
{{- .Values.extraCloudConfig }}
{{- end }}

{{- /*
What of the cloud config decides whether the pods must start anew. Credentials are left out: the program reads them again when
they change, and a hash in the pod template would let whoever sees pods try out guesses. In YAML a credential may span lines, so
that of a file with credentials only the keys count that hold none, and no text.
*/ -}}
{{- define "ccm.cloudConfigWithoutSecrets" -}}
{{- $config := (include "ccm.cloud" . | fromJson).config -}}
{{- if and (include "ccm.hasCloudConfig" .) (eq $config.format "INI") -}}
{{- $text := include "ccm.cloudConfig" . | trim -}}
{{- range $config.secretKeys -}}
{{- $text = regexReplaceAll (printf "(?i)%s[ \t]*=(.*\\\\\\r?\\n)*.*" (regexQuoteMeta .)) $text "" -}}
{{- end -}}
{{- $text }}
{{- else if $config.holdsCredentials -}}
{{- $open := deepCopy .Values.cloudConfig -}}
{{- range $key, $_ := .Values.cloudConfig }}{{ range $config.secretKeys -}}
{{- if eq (lower $key) (splitList "." . | first | lower) }}{{ $open = omit $open $key }}{{ end -}}
{{- end }}{{ end -}}
{{- with $open }}{{ toYaml . }}{{ end }}
{{- else if include "ccm.hasCloudConfig" . -}}
{{- include "ccm.cloudConfig" . | trim }}
{{- end -}}
{{- end }}

{{- /* Whether the API server knows the kinds of the Prometheus operator. */ -}}
{{- define "ccm.monitors" -}}
{{- if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}true{{ end }}
{{- end }}

{{- define "ccm.scraped" -}}
{{- if or .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled }}true{{ end }}
{{- end }}

{{- /* A Service's name has no more than 63 characters. */ -}}
{{- define "ccm.metricsService" -}}
{{- printf "%s-metrics" (include "ccm.fullname" . | trunc 55 | trimSuffix "-") }}
{{- end }}

{{- /* What tells the series of this release from those of others: as the monitors of the chart label them. */ -}}
{{- define "ccm.series" -}}
{{- $names := printf "%s(-metrics)?" (include "ccm.fullname" .) -}}
{{- if ne (include "ccm.metricsService" .) (printf "%s-metrics" (include "ccm.fullname" .)) -}}
{{- $names = printf "(%s|%s)" (include "ccm.fullname" .) (include "ccm.metricsService" .) -}}
{{- end -}}
{{- default (printf "namespace=%q,job=~%q" (include "ccm.namespace" .) (printf "(%s/)?%s" (default (include "ccm.namespace" .) .Values.metrics.namespace) $names)) .Values.metrics.rules.selector }}
{{- end }}

{{- define "ccm.bindAddress" -}}
{{- if .Values.bindAddress }}{{ .Values.bindAddress }}
{{- else if and .Values.hostNetwork (not (include "ccm.scraped" .)) }}127.0.0.1
{{- else }}0.0.0.0{{ end }}
{{- end }}

{{- define "ccm.runs" -}}
{{- if has .name (include "ccm.controllers" .root | fromJsonArray) }}true{{ end }}
{{- end }}

{{- /* The controllers that run: those that are named, the cloud's own that gives nodes their pod ranges, and what approves certificates. */ -}}
{{- define "ccm.controllers" -}}
{{- $all := .Values.controllers -}}
{{- range (include "ccm.cloud" . | fromJson).controllers -}}
{{- if and .podRanges $.Values.routes.allocateNodeCIDRs }}{{ $all = append $all .name }}{{ end -}}
{{- end -}}
{{- if .Values.kubeletServingCertificates.approve }}{{ $all = append $all "kubelet-serving-approver" }}{{ end -}}
{{- uniq $all | toJson -}}
{{- end }}

{{- /* The annotations that a Service has by the defaults of its class, as an expression of the API server. */}}
{{- define "ccm.defaultsOfClass" -}}
{{- $classes := list -}}
{{- range .Values.serviceDefaults -}}
{{- $pairs := list -}}
{{- range $key, $value := .annotations }}{{ $pairs = append $pairs (printf "%s: %s" (include "ccm.celString" $key) (include "ccm.celString" $value)) }}{{ end -}}
{{- if $pairs }}{{ $classes = append $classes (printf "%s: {%s}" (include "ccm.celString" .loadBalancerClass) (join ", " $pairs)) }}{{ end -}}
{{- end -}}
{{- if $classes -}}
{{ printf "{%s}[?object.spec.?loadBalancerClass.orValue('')].orValue({})" (join ", " $classes) | toJson }}
{{- else -}}
'{}'
{{- end -}}
{{- end -}}

{{- /* A text as a literal of the API server's expressions. */}}
{{- define "ccm.celString" -}}
{{- printf "'%s'" (. | replace "\\" "\\\\" | replace "'" "\\'" | replace "\n" "\\n" | replace "\r" "\\r") -}}
{{- end -}}

{{- /* Whether a Service of type LoadBalancer is served here, in the API server's expressions. */ -}}
{{- define "ccm.served" -}}
{{- $classes := list -}}
{{- if ne .Values.loadBalancerClassMode "unclassed" }}{{ $classes = append $classes .Values.loadBalancerClass }}{{ end -}}
{{- range .Values.serviceDefaults }}{{ with .loadBalancerClass }}{{ $classes = append $classes . }}{{ end }}{{ end -}}
{{- range (include "ccm.cloud" . | fromJson).controllers -}}
{{- if and .classes (include "ccm.runs" (dict "root" $ "name" .name)) }}{{ $classes = concat $classes .classes }}{{ end -}}
{{- end -}}
{{- $classes = uniq $classes -}}
{{- $has := "has(object.spec.loadBalancerClass)" -}}
{{- $is := printf "object.spec.loadBalancerClass == %s" (first (append $classes "") | squote) -}}
{{- if gt (len $classes) 1 -}}
{{- $quoted := list }}{{ range $classes }}{{ $quoted = append $quoted (squote .) }}{{ end -}}
{{- $is = printf "object.spec.loadBalancerClass in [%s]" (join ", " $quoted) -}}
{{- end -}}
{{- if not $classes -}}
object.spec.type == 'LoadBalancer' && !{{ $has }}
{{- else if eq .Values.loadBalancerClassMode "named" -}}
object.spec.type == 'LoadBalancer' && {{ $has }} && {{ $is }}
{{- else -}}
object.spec.type == 'LoadBalancer' && (!{{ $has }} || {{ $is }})
{{- end }}
{{- end }}

{{- /* The framework's controllers by the names of their accounts. All of them: the program asks for a client of each. */ -}}
{{- define "ccm.accounts" -}}
{{- list "node-controller" "service-controller" "route-controller" | toJson }}
{{- end }}

{{- /* What one of the framework's controllers does with its own account, as rules, one a line: it reads a Node before it patches it. */ -}}
{{- define "ccm.controllerRules" -}}
{{- $rules := list -}}
{{- $node := include "ccm.runs" (dict "root" .root "name" "cloud-node-controller") -}}
{{- $lifecycle := include "ccm.runs" (dict "root" .root "name" "cloud-node-lifecycle-controller") -}}
{{- $service := include "ccm.runs" (dict "root" .root "name" "service-lb-controller") -}}
{{- $route := include "ccm.runs" (dict "root" .root "name" "node-route-controller") -}}
{{- $isNode := eq .controller "node-controller" -}}
{{- if and $isNode $node }}{{ $rules = append $rules "- {apiGroups: [\"\"], resources: [nodes], verbs: [get, update, patch]}" }}{{ end -}}
{{- if and $isNode $lifecycle }}{{ $rules = append $rules "- {apiGroups: [\"\"], resources: [nodes], verbs: [get, patch, delete]}" }}{{ end -}}
{{- if or (and $isNode $node) (and $route (eq .controller "route-controller")) }}{{ $rules = append $rules "- {apiGroups: [\"\"], resources: [nodes/status], verbs: [patch]}" }}{{ end -}}
{{- if and $service (eq .controller "service-controller") }}{{ $rules = append $rules "- {apiGroups: [\"\"], resources: [services, services/status], verbs: [patch]}" }}{{ end -}}
{{- join "\n" $rules }}
{{- end }}

{{- /* A right of the cloud's description as a rule. */ -}}
{{- define "ccm.rule" -}}
- {apiGroups: [{{ default "" .group | quote }}], resources: [{{ join ", " .resources }}], {{ with .names }}resourceNames: [{{ join ", " . }}], {{ end }}verbs: [{{ join ", " .verbs }}]}
{{- end }}
