package main

// Limits that the API server or the program would otherwise check only after an installation.
const (
	// labelName is the usual form of object names, dnsName the one with dots; here both may be empty.
	labelName = `^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$`
	dnsName   = `^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$`
	// network is one network, or one of each family, as in --cluster-cidr. The program checks IPv6 addresses.
	octet    = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	network4 = octet + `(\.` + octet + `){3}/(3[0-2]|[12]?[0-9])`
	network6 = `[0-9a-fA-F:]*:[0-9a-fA-F:]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9])`
	network  = `^(` + network4 + `(,` + network6 + `)?|` + network6 + `(,` + network4 + `)?)?$`
	// labelKey and labelValue are Kubernetes' forms, tag that of an image.
	labelKey   = `^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	labelValue = `^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	tag        = `^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$`
	address    = `^([0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)?$`
	digest     = `^(sha256:[0-9a-f]{64})?$`
	// duration is Prometheus' form.
	duration = `^([0-9]+(ms|[smhdwy]))*$`
	class    = labelKey
	// repository is an image without tag and digest, which are separate values.
	part       = `[a-z0-9]+([._-]+[a-z0-9]+)*`
	repository = `^((\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(:[0-9]+)?/)?` + part + `(/` + part + `)*$`
	// matchers are Prometheus' label matchers between braces. An invalid one would invalidate the whole rule file.
	matcher  = `\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(=~|!~|!=|=)\s*"([^"\\]|\\.)*"\s*`
	matchers = `^(` + matcher + `(,` + matcher + `)*)?$`
)

// texts are mappings with only string values, such as annotations; references are objects of which only the name is used.
var (
	texts      = object{"additionalProperties": object{"type": "string"}}
	references = object{"items": object{
		"type": "object", "required": []string{"name"}, "properties": object{"name": object{"type": "string"}}, "additionalProperties": false,
	}}
)

// patterns are of values that are one text.
var patterns = map[string]string{
	"clusterName": `^\S+$`, "image.repository": repository, "image.tag": tag, "image.digest": digest, "routes.clusterCIDR": network,
	"bindAddress": address, "metrics.rules.selector": matchers,
}

// schemaLimits returns the limits of a value besides its type.
func schemaLimits(path string) object {
	if pattern, has := patterns[path]; has {
		return object{"pattern": pattern}
	}
	switch path {
	case "logLevel":
		return object{"maximum": 10}
	case "securePort":
		return object{"minimum": 1, "maximum": 65535}
	case "nameOverride", "fullnameOverride", "namespaceOverride", "metrics.namespace", "leaderElection.namespace":
		return object{"pattern": labelName}
	case "serviceAccount.name", "credentials.existingSecret", "leaderElection.leaseName", "metrics.scraper.existingSecret", "priorityClassName":
		return object{"pattern": dnsName}
	case "kubeletServingCertificates.reserved":
		return object{"items": object{"type": "string", "pattern": `^[^,\s]+$`}}
	case "nodeLabelsFromTags":
		return object{"uniqueItems": true, "items": object{"type": "string", "pattern": `^(cluster-autoscaler|[^",]+=[^",=]+)$`}}
	case "routes.cidrAllocatorType":
		return object{"enum": []any{"", "RangeAllocator", "CloudAllocator"}}
	case "metrics.serviceMonitor.interval", "metrics.podMonitor.interval", "metrics.serviceMonitor.scrapeTimeout", "metrics.podMonitor.scrapeTimeout":
		return object{"pattern": duration}
	case "podLabels", "commonLabels":
		chosen := object{"const": "absent: the pods are chosen by this label"}
		return object{
			"properties":           object{"app.kubernetes.io/name": chosen, "app.kubernetes.io/instance": chosen},
			"propertyNames":        object{"pattern": labelKey},
			"additionalProperties": object{"type": "string", "pattern": labelValue},
		}
	case "controllers":
		return object{"minItems": 1, "uniqueItems": true}
	}
	return looseLimits(path)
}

// looseLimits catches common mistakes in values that Kubernetes or the program validates later.
func looseLimits(path string) object {
	switch path {
	case "commonAnnotations", "podAnnotations", "serviceAccount.annotations", "nodeSelector",
		"metrics.serviceMonitor.labels", "metrics.serviceMonitor.annotations", "metrics.podMonitor.labels", "metrics.podMonitor.annotations",
		"metrics.rules.labels", "metrics.rules.annotations", "metrics.dashboard.labels", "metrics.dashboard.annotations":
		return texts
	case "imagePullSecrets", "global.imagePullSecrets":
		return references
	case "dnsPolicy":
		return object{"enum": []any{"", "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"}}
	case "strategy":
		return object{"properties": object{"type": object{"enum": []any{"RollingUpdate", "Recreate"}}}}
	case "updateStrategy":
		return object{"properties": object{"type": object{"enum": []any{"RollingUpdate", "OnDelete"}}}}
	case "admissionPolicy.excludeNamespaces":
		return object{"items": object{"type": "string", "minLength": 1, "pattern": labelName}}
	case "admissionPolicy.exemptUsers":
		return object{"items": object{"type": "string", "pattern": "^[^'\\\\]+$"}}
	case "extraArgs":
		return object{"items": object{"type": "string", "pattern": "^-"}}
	case "extraEnv":
		return object{"items": object{
			"type": "object", "required": []string{"name"}, "additionalProperties": false,
			"properties": object{
				"name": object{"type": "string", "pattern": `^[^=\s]+$`}, "value": object{"type": "string"}, "valueFrom": object{"type": "object"},
			},
		}}
	case "serviceDefaults":
		return object{"items": object{
			"type": "object", "required": []string{"loadBalancerClass"}, "additionalProperties": false,
			"properties": object{
				"loadBalancerClass": object{"type": "string", "pattern": `^$|` + class},
				// A class without its own defaults has a key without a value.
				"annotations": object{"type": []string{"object", "null"}, "additionalProperties": object{"type": "string"}},
			},
		}}
	}
	return object{}
}

// classRules require class and mode to be set together, because the program refuses one without the other.
func classRules() []any {
	mode := func(values ...any) object {
		return object{"properties": object{"loadBalancerClassMode": object{"enum": values}}, "required": []string{"loadBalancerClassMode"}}
	}
	held := func(to object) object {
		return object{"properties": object{"loadBalancerClass": to}, "required": []string{"loadBalancerClass"}}
	}
	return []any{
		object{"if": mode("named", "named-and-unclassed"), "then": held(object{"pattern": class})},
		object{"if": mode("unclassed"), "then": held(object{"const": ""})},
	}
}
