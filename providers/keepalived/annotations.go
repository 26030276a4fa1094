package keepalived

import (
	"errors"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	annotationIPs       = "kube-vip.io/loadbalancerIPs"
	annotationInterface = "kube-vip.io/serviceInterface"
	annotationMethod    = "k8s.co/keepalived-forward-method"
	// annotationHost is an annotation of kube-vip.
	annotationHost = "kube-vip.io/vipHost"
)

type settings struct {
	Addresses, Method, Interface string
}

// Annotations has the names that keepalived-cloud-provider and kube-vip use.
var Annotations = schema.Annotations[settings]{
	schema.StringAnnotation(func(s *settings) *string { return &s.Addresses }, schema.AnnotationRow{
		Key: annotationIPs, Changes: schema.InPlace, Spec: schema.Spec{
			Help: "Addresses of the Service: one, or one of IPv4 and one of IPv6, separated by a comma. It wins over spec.loadBalancerIP. " +
				"With kube-vip it is also where the address is recorded that the Service was given.",
			DefaultHelp: "the first free one of the pool",
			Rules: []schema.Rule{
				schema.Must(`^\s*`+anyAddress+`\s*(?:,\s*`+anyAddress+`\s*)?$`, "is not an IP address, or one of IPv4 and one of IPv6 separated by a comma"),
				schema.MustNot(`^[^:]*,[^:]*$|:.*,.*:`, "holds several addresses of a family; use one, or one of IPv4 and one of IPv6 separated by a comma"),
			},
		},
	}).Serving(schema.Serves{Portable: portable.Address}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Method }, schema.AnnotationRow{
		Key: annotationMethod, Changes: schema.InPlace, Spec: schema.Spec{
			Choices: methods(), Lenient: true, DefaultHelp: envMethod,
			Help: "How kube-keepalived-vip forwards to the pods of the Service. It has no effect with other announcers.",
		},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Interface }, schema.AnnotationRow{
		Key: annotationInterface, Changes: schema.InPlace, Spec: schema.Spec{
			Help:        "Interface that kube-vip announces the address on. It has no effect with other announcers.",
			DefaultHelp: "that of the ConfigMap of pools",
		},
	}),
}

const anyAddress = "(?:" + schema.IPv4Pattern + `|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)`

// parseSettings parses and checks the annotations of a Service without reading the cluster.
func parseSettings(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	problems := []error{err}
	if s.Addresses != "" && err == nil {
		for part := range strings.SplitSeq(s.Addresses, ",") {
			if why := invalidReason(part); why != "" {
				problems = append(problems, &schema.Problem{Place: "annotation " + annotationIPs, Value: s.Addresses, Reason: why})
			}
		}
	}
	if text := service.Spec.LoadBalancerIP; text != "" && s.Addresses == "" {
		if why := invalidReason(text); why != "" {
			problems = append(problems, &schema.Problem{Place: "spec.loadBalancerIP", Value: text, Reason: why})
		}
	}
	return s, warnings, errors.Join(problems...)
}

// invalidReason returns why a requested address is invalid; "" if it is valid.
func invalidReason(text string) string {
	a := parseAddress(text)
	if raw, err := netip.ParseAddr(strings.TrimSpace(text)); err != nil || raw != a {
		return "is not an IP address"
	}
	return unusableReason(a)
}

// requestedAddresses returns the addresses that a Service requests.
func requestedAddresses(service *v1.Service, s settings) []netip.Addr {
	if s.Addresses != "" {
		return lenientList(s.Addresses)
	}
	return lenientList(service.Spec.LoadBalancerIP)
}

// checkService implements registry.Provider.CheckService.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	c, _, _ := parseConfig(in) // missing options do not matter for a Service
	_, warnings, err = parseSettings(service)
	told, _ := c.judge(service)
	return errors.Join(warnings, told), err
}
