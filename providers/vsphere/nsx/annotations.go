package nsx

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// annotationClass names the class, as with the cloud's own controller.
const annotationClass = "loadbalancer.vmware.io/class"

// Our annotations, for settings of NSX that the cloud's own controller does not change.
const (
	annotationAlgorithm = "anyccm.io/vsphere-algorithm"
	annotationInterval  = "anyccm.io/vsphere-health-check-interval"
	annotationTimeout   = "anyccm.io/vsphere-health-check-timeout"
	annotationRise      = "anyccm.io/vsphere-health-check-rise-count"
	annotationFall      = "anyccm.io/vsphere-health-check-fall-count"
)

// settings are the typed annotations of one Service.
type settings struct {
	Class, Algorithm string
	Check            checkSettings
}

// maxCount is the largest number that NSX accepts in settings of health checks.
const maxCount = 2147483647.0

// checkSetting is an annotation for a setting of the health checks of TCP ports.
func checkSetting(key, standard, help string, at func(*settings) *int, serves schema.Serves) schema.Annotation[settings] {
	return schema.IntAnnotation(at, schema.AnnotationRow{Key: key, Changes: schema.InPlace, Spec: schema.Spec{
		Min: new(1.0), Max: new(maxCount), DefaultHelp: standard, Help: help + " Of TCP ports; where one of these settings is given, the others are NSX's own.",
	}}).Serving(serves)
}

// Annotations is the table of Service annotations.
var Annotations = schema.Annotations[settings]{
	schema.StringAnnotation(func(s *settings) *string { return &s.Class }, schema.AnnotationRow{
		Key: annotationClass, Changes: schema.AtCreation,
		Spec: schema.Spec{
			Default: defaultClass, MaxLength: 253, Check: checkClassName,
			Help: "Class of the load balancer: a section loadBalancerClass of the cloud config, or default. It picks the pool of the address, which stays when the " +
				"annotation changes, and the application profiles, which follow it.",
		},
	}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Algorithm }, schema.AnnotationRow{
		Key: annotationAlgorithm, Changes: schema.InPlace, Spec: schema.Spec{
			Choices: []string{defaultAlgorithm, "LEAST_CONNECTION", "IP_HASH"}, DefaultHelp: defaultAlgorithm, Help: "How nodes are chosen.",
		},
	}).Serving(schema.Serves{Portable: portable.Algorithm, Values: map[string]string{
		portable.RoundRobin: defaultAlgorithm, portable.LeastConnections: "LEAST_CONNECTION", portable.SourceIP: "IP_HASH",
	}}),
	checkSetting(annotationInterval, "5", "Seconds between two health checks.", func(s *settings) *int { return &s.Check.Interval },
		schema.Serves{Portable: portable.CheckInterval, Unit: time.Second}),
	checkSetting(annotationTimeout, "5", "Seconds after which a health check has failed.", func(s *settings) *int { return &s.Check.Timeout },
		schema.Serves{Portable: portable.CheckTimeout, Unit: time.Second}),
	checkSetting(annotationRise, "3", "Health checks in a row that take a node in.", func(s *settings) *int { return &s.Check.Rise },
		schema.Serves{Portable: portable.HealthyThreshold}),
	checkSetting(annotationFall, "3", "Health checks in a row that leave a node out.", func(s *settings) *int { return &s.Check.Fall },
		schema.Serves{Portable: portable.UnhealthyThreshold}),
}

func checkClassName(name string) error {
	if nsxlimits.Tag.CheckText(name) != nil || strings.ContainsAny(name, "\"[]\n") {
		return errors.New("is not the name of a section loadBalancerClass of the cloud config")
	}
	return nil
}

// parseSettings parses the annotations, and checks them against the configured classes.
func parseSettings(service *v1.Service, c loadBalancerConfig) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	s.Class = cmp.Or(strings.TrimSpace(s.Class), defaultClass)
	if err != nil || !c.Enabled {
		return s, warnings, err // without the section, the classes are unknown
	}
	classes := c.classes()
	if _, known := classes[s.Class]; !known {
		err = &schema.Problem{Place: "annotation " + annotationClass, Value: s.Class, Reason: fmt.Sprintf(
			"is not a class of the cloud config; there are %s", strings.Join(slices.Sorted(maps.Keys(classes)), ", "))}
	}
	return s, warnings, err
}

// CheckService reports the faults of a Service that need no call to NSX.
func (l loadBalancerConfig) CheckService(service *v1.Service) (warnings, err error) {
	_, warnings, err = parseSettings(service, l)
	told, refused := ServiceFields.Judge(service, nil)
	if len(service.Spec.Ports) == 0 {
		refused = errors.New("spec.ports: the Service has no port")
	}
	return errors.Join(warnings, told), errors.Join(err, refused)
}
