package aws

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// portableRows are the portable annotations that each annotation serves.
func portableRows() map[string][]schema.Serves {
	return map[string][]schema.Serves{
		annotationInternal: {{
			Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: textFalse, portable.SchemeInternal: textTrue},
			Same: sameScheme,
		}},
		annotationProxyProtocol: {{Portable: portable.ProxyProtocol, Values: map[string]string{portable.ProxyNone: "", portable.ProxyV1: "*"}}},
		annotationTargetAttributes: {{
			Portable: portable.ProxyProtocol, Choose: true, Merge: mergeAttributes,
			Values: map[string]string{portable.ProxyNone: attributeProxyV2 + "=" + textFalse, portable.ProxyV2: attributeProxyV2 + "=" + textTrue},
		}},
		annotationIdleTimeout:        {{Portable: portable.IdleTimeout, Unit: time.Second}},
		annotationGroups:             {{Portable: portable.SecurityGroups, Only: "by ID; with nlb where NLBSecurityGroupMode is Managed"}},
		annotationCertificate:        {{Portable: portable.Certificate}},
		annotationTLSPorts:           {{Portable: portable.TLSPorts, Translate: portableTLSPorts}},
		annotationTags:               {{Portable: portable.Tags}},
		annotationCheckProtocol:      {{Portable: portable.CheckProtocol}},
		annotationCheckPort:          {{Portable: portable.CheckPort, Translate: portableCheckPort}},
		annotationCheckPath:          {{Portable: portable.CheckPath}},
		annotationHealthyThreshold:   {{Portable: portable.HealthyThreshold}},
		annotationUnhealthyThreshold: {{Portable: portable.UnhealthyThreshold}},
		annotationCheckTimeout: {
			{Portable: portable.CheckTimeout, Unit: time.Second, Max: new(float64(maxClassicTimeout)), Where: classicKind()},
			{Portable: portable.CheckTimeout, Unit: time.Second, Where: networkKind()},
		},
		annotationCheckInterval: {{Portable: portable.CheckInterval, Unit: time.Second}},
		annotationPrivateAddresses: {{Portable: portable.Address, Rules: []schema.Rule{
			schema.Must(`^\s*`+schema.IPv4Pattern+`\s*$`, "is not one IPv4 address, which is all that AWS takes"),
		}, Where: &schema.Where{Key: annotationInternal, OneOf: []string{textTrue}}}},
		annotationSubnets: {{Portable: portable.Subnet}},
	}
}

// sameScheme compares what stands in the annotation internal, where any text but false means that it is.
func sameScheme(own, translated string) bool {
	return (own != "" && own != textFalse) == (translated == textTrue)
}

// classicKind and networkKind are the conditions for the two kinds of load balancers.
func classicKind() *schema.Where {
	return &schema.Where{Key: annotationType, NoneOf: []string{typeNLB, typeNLBIP, typeExternal}}
}

func networkKind() *schema.Where {
	return &schema.Where{Key: annotationType, OneOf: []string{typeNLB}}
}

// portableTLSPorts drops blanks around ports, which AWS's annotation takes for a part of them.
func portableTLSPorts(value string, _ schema.Asked) (map[string]string, error) {
	return map[string]string{
		annotationTLSPorts: strings.Join(strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' }), ","),
	}, nil
}

func portableCheckPort(value string, _ schema.Asked) (map[string]string, error) {
	if value == portable.NodePort {
		value = trafficPort
	}
	return map[string]string{annotationCheckPort: value}, nil
}

// mergeAttributes adds the attributes of a list that another one lacks.
func mergeAttributes(own, translated string) (merged string, contradict bool) {
	have, err := parseTargetAttributes(own)
	if err != nil {
		return own, true
	}
	more, _ := parseTargetAttributes(translated)
	var added strings.Builder
	for _, key := range slices.Sorted(maps.Keys(more)) {
		if had, ok := have[key]; ok {
			contradict = contradict || had != more[key]
			continue
		}
		added.WriteString("," + key + "=" + more[key])
	}
	return own + added.String(), contradict
}

// unsupportedReason refuses security groups if an option disables them for network load balancers.
func unsupportedReason(in registry.Inputs, service *v1.Service) error {
	groups := service.Annotations[portable.SecurityGroups]
	if network, _ := kindOf(service); groups == "" || !network || len(in.File) == 0 {
		return nil // whether they count is for the cloud config to say
	}
	if c, _, _ := parseConfig(in); c.NLBGroupMode == groupModeManaged {
		return nil
	}
	return &schema.Problem{
		Place: "annotation " + portable.SecurityGroups, Value: groups,
		Reason: portable.Refusal("AWS") + ", or set the option NLBSecurityGroupMode to Managed, without which a network load balancer has none",
	}
}
