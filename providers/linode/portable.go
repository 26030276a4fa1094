package linode

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// frontendKeys are the annotations for the network of a private NodeBalancer.
func frontendKeys() []string {
	return []string{annotationFrontendSubnetID, annotationFrontendSubnet, annotationFrontendVPC}
}

// oneDecimal is a pattern of the ID of a subnet, and internal one of the scheme.
const (
	oneDecimal = `^\+?[0-9]{1,18}$`
	internal   = `^` + portable.SchemeInternal + `$`
)

const noEffectPublic = "a public NodeBalancer is in no network; remove it, or set " + portable.Scheme + " to " + portable.SchemeInternal

// schemeRules compare a portable scheme with the subnet, which makes a NodeBalancer private.
func schemeRules() []schema.Rule {
	subnet := []schema.Term{{Key: portable.Subnet, Matches: `.`}}
	var rules []schema.Rule
	for _, key := range frontendKeys() {
		subnet = append(subnet, schema.Term{Key: key, Matches: `.`})
		rules = append(rules, schema.Rule{
			When: []schema.Term{{Matches: `^` + portable.SchemePublic + `$`}}, Needs: []schema.Term{{Key: key, Matches: `^$`}}, NoEffect: true,
			Words: "it contradicts " + key + ", which makes the NodeBalancer private and wins; remove one of them",
		})
	}
	return append(rules, schema.Rule{
		When: []schema.Term{{Matches: internal}}, Needs: subnet,
		Words: "needs a subnet on Linode (Akamai), so that nothing is created or changed: set " + portable.Subnet,
	})
}

func subnetRules() []schema.Rule {
	return []schema.Rule{
		{Needs: []schema.Term{{Key: portable.Scheme, Matches: internal}}, NoEffect: true, Words: noEffectPublic},
		schema.MustNot(`,`, "holds several subnets; a NodeBalancer is in one"),
		{
			Needs: []schema.Term{{Matches: oneDecimal}, {Key: portable.Network, Matches: `.`}},
			Words: "is a name, which needs that of its VPC: set " + portable.Network + ", or use the ID of the subnet",
		},
	}
}

func networkRules() []schema.Rule {
	return []schema.Rule{
		{Needs: []schema.Term{{Key: portable.Scheme, Matches: internal}}, NoEffect: true, Words: noEffectPublic},
		{Needs: []schema.Term{{Key: portable.Subnet, Lacks: oneDecimal}}, NoEffect: true, Words: "the ID of a subnet says all; remove it"},
	}
}

// portableSubnet translates a subnet to its ID or its label.
func portableSubnet(value string, _ schema.Asked) (map[string]string, error) {
	if schema.Decimal.Holds(value) {
		return map[string]string{annotationFrontendSubnetID: value}, nil
	}
	return map[string]string{annotationFrontendSubnet: value}, nil
}

// certificateRules allow only Secrets.
func certificateRules() []schema.Rule {
	return []schema.Rule{schema.Must(
		`^`+portable.SecretPrefix, "is no Secret, and Linode (Akamai) has no certificates of its own; use "+portable.SecretPrefix+"<name>",
	)}
}

// portableCertificate makes the TLS ports https ports with the Secret.
func portableCertificate(value string, a schema.Asked) (map[string]string, error) {
	own := map[string]string{}
	for _, p := range a.PortsNamed(a.Portable[portable.TLSPorts]) {
		text, err := json.Marshal(map[string]string{"protocol": protocolHTTPS, "tls-secret-name": strings.TrimPrefix(value, portable.SecretPrefix)})
		if err != nil {
			return nil, err
		}
		own[annotationPort+strconv.Itoa(int(p.Number))] = string(text)
	}
	return own, nil
}

// mergePort adds settings of a port that its own annotation lacks.
func mergePort(own, translated string) (merged string, contradict bool) {
	var have, more map[string]string
	if json.Unmarshal([]byte(own), &have) != nil || json.Unmarshal([]byte(translated), &more) != nil || have == nil {
		return own, true
	}
	for key, value := range more {
		if had, ok := have[key]; ok {
			contradict = contradict || !strings.EqualFold(had, value)
			continue
		}
		have[key] = value
	}
	text, err := json.Marshal(have)
	if err != nil {
		return own, true
	}
	return string(text), contradict
}
