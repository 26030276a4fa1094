package digitalocean

import (
	"errors"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// onRegional limits annotations to the type that terminates TLS.
var onRegional = &schema.Where{Key: annotationType, OneOf: []string{godo.LoadBalancerTypeRegional}, Decided: true}

// overrideCheck enables the settings of an own health check.
var overrideCheck = map[string]string{annotationOverrideCheck: "true"}

// portableCertificate translates the portable certificate, which applies to all ports unless the Service names some.
func portableCertificate(value string, a schema.Asked) (map[string]string, error) {
	own := map[string]string{annotationCertificateName: value}
	if schema.UUID.Holds(value) {
		own = map[string]string{annotationCertificateID: value}
	}
	if a.Portable[portable.TLSPorts] == "" && a.Own[annotationTLSPorts] == "" && a.Own[annotationHTTP2Ports] == "" {
		own[annotationTLSPorts] = portNumbers(a.PortsNamed(""))
	}
	return own, nil
}

func portableTLSPorts(value string, a schema.Asked) (map[string]string, error) {
	return map[string]string{annotationTLSPorts: portNumbers(a.PortsNamed(value))}, nil
}

func portNumbers(ports []schema.Port) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = strconv.Itoa(int(p.Number))
	}
	return strings.Join(texts, ",")
}

// portableCheckPort translates the health check port. DigitalOcean's annotation expects the Service port.
func portableCheckPort(value string, a schema.Asked) (map[string]string, error) {
	for _, p := range a.PortsNamed("") {
		if value == portable.NodePort || value == strconv.Itoa(int(p.NodePort)) {
			return map[string]string{annotationCheckPort: strconv.Itoa(int(p.Number))}, nil
		}
	}
	if value == portable.NodePort {
		return nil, errors.New("cannot be served on DigitalOcean for a Service without a TCP port; remove it")
	}
	return nil, errors.New("is not a node port of the Service, and DigitalOcean checks only those; use " + portable.NodePort)
}
