package main

// What the API server or the program would refuse only after an installation.
const (
	// labelName is a name of an object as most kinds have it, dnsName one with dots; both may be empty here.
	labelName = `^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$`
	dnsName   = `^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$`
	// network is one network, or one of each family, as --cluster-cidr takes them. How an IPv6 address is written is left to the program.
	octet    = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	network4 = octet + `(\.` + octet + `){3}/(3[0-2]|[12]?[0-9])`
	network6 = `[0-9a-fA-F:]*:[0-9a-fA-F:]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9])`
	network  = `^(` + network4 + `(,` + network6 + `)?|` + network6 + `(,` + network4 + `)?)?$`
	// labelKey and labelValue are those of Kubernetes; tag is that of an image.
	labelKey   = `^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	labelValue = `^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	tag        = `^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$`
	address    = `^([0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)?$`
	digest     = `^(sha256:[0-9a-f]{64})?$`
	// duration is one of Prometheus.
	duration = `^([0-9]+(ms|[smhdwy]))*$`
	class    = `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
)

// limits are what a value is held to besides its type.
func limits(path string) object {
	switch path {
	case "logLevel":
		return object{"maximum": 10}
	case "securePort":
		return object{"minimum": 1, "maximum": 65535}
	case "image.repository", "clusterName":
		return object{"pattern": `^\S+$`}
	case "image.tag":
		return object{"pattern": tag}
	case "image.digest":
		return object{"pattern": digest}
	case "nameOverride", "fullnameOverride", "namespaceOverride", "metrics.namespace":
		return object{"pattern": labelName}
	case "serviceAccount.name", "credentials.existingSecret", "leaderElection.leaseName", "metrics.scraper.existingSecret", "priorityClassName":
		return object{"pattern": dnsName}
	case "routes.clusterCIDR":
		return object{"pattern": network}
	case "routes.cidrAllocatorType":
		return object{"enum": []any{"", "RangeAllocator", "CloudAllocator"}}
	case "bindAddress":
		return object{"pattern": address}
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
	return object{}
}

// classRules hold the class of load balancers to the mode: the program refuses one without the other.
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
