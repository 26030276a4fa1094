package linode

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// frontendKeys are the annotations that say in which network a private NodeBalancer is.
func frontendKeys() []string {
	return []string{annotationFrontendSubnetID, annotationFrontendSubnet, annotationFrontendVPC}
}

// ownFrontend returns the annotation that makes the NodeBalancer private, "" where there is none.
func ownFrontend(a schema.Asked) string {
	for _, key := range frontendKeys() {
		if a.Own[key] != "" {
			return key
		}
	}
	return ""
}

// portableScheme holds a portable scheme against the subnet, which is what makes a NodeBalancer private.
func portableScheme(value string, a schema.Asked) (map[string]string, error) {
	switch {
	case value == portable.SchemeInternal && ownFrontend(a) == "" && a.Portable[portable.Subnet] == "":
		return nil, errors.New("needs a subnet on Linode (Akamai), so that nothing is created or changed: set " + portable.Subnet)
	case value == portable.SchemePublic && ownFrontend(a) != "":
		return nil, schema.NoEffect("it contradicts " + ownFrontend(a) + ", which makes the NodeBalancer private and wins; remove one of them")
	}
	return map[string]string{}, nil
}

// asksPrivate reports whether a Service asks for a private NodeBalancer.
func asksPrivate(a schema.Asked) bool { return a.Portable[portable.Scheme] == portable.SchemeInternal }

const noEffectPublic = schema.NoEffect("a public NodeBalancer is in no network; remove it, or set " + portable.Scheme + " to " + portable.SchemeInternal)

func portableSubnet(value string, a schema.Asked) (map[string]string, error) {
	switch {
	case !asksPrivate(a):
		return nil, noEffectPublic
	case schema.Decimal.Holds(value):
		return map[string]string{annotationFrontendSubnetID: value}, nil
	case strings.Contains(value, ","):
		return nil, errors.New("holds several subnets; a NodeBalancer is in one")
	case a.Portable[portable.Network] == "":
		return nil, errors.New("is a name, which needs that of its VPC: set " + portable.Network + ", or use the ID of the subnet")
	}
	return map[string]string{annotationFrontendSubnet: value}, nil
}

func portableNetwork(value string, a schema.Asked) (map[string]string, error) {
	switch {
	case !asksPrivate(a):
		return nil, noEffectPublic
	case schema.Decimal.Holds(a.Portable[portable.Subnet]):
		return nil, schema.NoEffect("the ID of a subnet says all; remove it")
	}
	return map[string]string{annotationFrontendVPC: value}, nil
}

// portableCertificate makes the ports that end TLS https ports, with the Secret.
func portableCertificate(value string, a schema.Asked) (map[string]string, error) {
	name, ok := strings.CutPrefix(value, portable.SecretPrefix)
	if !ok {
		return nil, errors.New("is no Secret, and Linode (Akamai) has no certificates of its own; use " + portable.SecretPrefix + "<name>")
	}
	own := map[string]string{}
	for _, p := range a.PortsNamed(a.Portable[portable.TLSPorts]) {
		text, err := json.Marshal(map[string]string{"protocol": protocolHTTPS, "tls-secret-name": name})
		if err != nil {
			return nil, err
		}
		own[annotationPort+strconv.Itoa(int(p.Number))] = string(text)
	}
	return own, nil
}

// withCertificate leaves the ports to the translation of the certificate.
func withCertificate(string, schema.Asked) (map[string]string, error) {
	return map[string]string{}, nil
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
