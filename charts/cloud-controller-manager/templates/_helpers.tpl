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

{{- define "ccm.labels" -}}
{{ include "ccm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: {{ .Values.cloudProvider }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "ccm.serviceAccount" -}}
{{- default (include "ccm.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "ccm.lease" -}}
{{- default (include "ccm.fullname" .) .Values.leaderElection.leaseName }}
{{- end }}

{{- /* Names of objects outside of namespaces carry the namespace, so that releases do not clash. */ -}}
{{- define "ccm.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "ccm.fullname" .) }}
{{- end }}

{{- define "ccm.image" -}}
{{- $name := .Values.image.repository -}}
{{- if .Values.image.slim }}{{ $name = printf "%s-%s" $name .Values.cloudProvider }}{{ end -}}
{{- if .Values.image.digest }}{{ printf "%s@%s" $name .Values.image.digest }}{{ else }}{{ printf "%s:%s" $name (default .Chart.AppVersion .Values.image.tag) }}{{ end }}
{{- end }}

{{- define "ccm.provider" -}}
{{- $known := .Files.Get "files/providers.json" | fromJson -}}
{{- if not (hasKey $known .Values.cloudProvider) }}
{{- fail (printf "cloudProvider is %q; set it to one of %s" .Values.cloudProvider (keys $known | sortAlpha | join ", ")) }}
{{- end }}
{{- toJson (get .Values .Values.cloudProvider) }}
{{- end }}

{{- define "ccm.secret" -}}
{{- $p := include "ccm.provider" . | fromJson -}}
{{- default (printf "%s-credentials" (include "ccm.fullname" .)) $p.credentials.existingSecret }}
{{- end }}

{{- /* The file in which the program finds its credential, and the variable that says so. */ -}}
{{- define "ccm.tokenVariable" -}}
{{- (get (.Files.Get "files/providers.json" | fromJson) .Values.cloudProvider).tokenVariable }}
{{- end }}

{{- /* The cloud config of a provider whose values are given. */ -}}
{{- define "ccm.cloudConf" -}}
{{- range $section, $keys := .cloudConfig }}
[{{ $section }}]
{{- range $key, $value := $keys }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
{{ $key }} = {{ toString . | replace "\\" "\\\\" | replace "\"" "\\\"" | printf "\"%s\"" }}
{{- end }}
{{- end }}
{{ end }}
{{- .extraCloudConfig }}
{{- end }}

{{- /* AWS needs no credential where a role gives one. */ -}}
{{- define "ccm.hasCredentials" -}}
{{- $p := include "ccm.provider" . | fromJson -}}
{{- if or (ne .Values.cloudProvider "aws") $p.credentials.existingSecret $p.credentials.accessKeyID }}true{{ end }}
{{- end }}

{{- /* The file of a cloud config that holds no secret. */ -}}
{{- define "ccm.hasCloudConfigMap" -}}
{{- if and (eq .Values.cloudProvider "aws") (or .Values.aws.cloudConfig .Values.aws.extraCloudConfig) }}true{{ end }}
{{- end }}

{{- /*
What of the cloud config decides whether the pods must start anew. Credentials are left out: the program reads them again when
they change, and a hash in the pod template would let whoever sees pods try out guesses.
*/ -}}
{{- define "ccm.cloudConfigWithoutSecrets" -}}
{{- $p := include "ccm.provider" . | fromJson -}}
{{- if or (hasKey $p "cloudConfig") (hasKey $p "extraCloudConfig") -}}
{{- $text := include "ccm.cloudConf" $p | trim -}}
{{- range (get (.Files.Get "files/providers.json" | fromJson) .Values.cloudProvider).secretKeys -}}
{{- $text = regexReplaceAll (printf "(?i)%s[ \t]*=(.*\\\\\\r?\\n)*.*" (regexQuoteMeta .)) $text "" -}}
{{- end -}}
{{- if or (not $p.credentials.existingSecret) (include "ccm.hasCloudConfigMap" .) }}{{ $text }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "ccm.scraped" -}}
{{- if or .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled }}true{{ end }}
{{- end }}

{{- define "ccm.bindAddress" -}}
{{- if .Values.bindAddress }}{{ .Values.bindAddress }}
{{- else if and .Values.hostNetwork (not (include "ccm.scraped" .)) }}127.0.0.1
{{- else }}0.0.0.0{{ end }}
{{- end }}

{{- define "ccm.runs" -}}
{{- if has .name .root.Values.controllers }}true{{ end }}
{{- end }}

{{- /* Whether a Service of type LoadBalancer is served here, in the API server's expressions. */ -}}
{{- define "ccm.served" -}}
{{- $class := .Values.loadBalancerClass | squote -}}
{{- if eq .Values.loadBalancerClassMode "unclassed" -}}
object.spec.type == 'LoadBalancer' && !has(object.spec.loadBalancerClass)
{{- else if eq .Values.loadBalancerClassMode "named" -}}
object.spec.type == 'LoadBalancer' && has(object.spec.loadBalancerClass) && object.spec.loadBalancerClass == {{ $class }}
{{- else -}}
object.spec.type == 'LoadBalancer' && (!has(object.spec.loadBalancerClass) || object.spec.loadBalancerClass == {{ $class }})
{{- end }}
{{- end }}
