package ibm

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	annotationPrefix        = "service.kubernetes.io/ibm-load-balancer-cloud-provider-"
	annotationIPType        = annotationPrefix + "ip-type"
	annotationFeatures      = annotationPrefix + "enable-features"
	annotationZone          = annotationPrefix + "zone"
	annotationSubnets       = annotationPrefix + "vpc-subnets"
	annotationNodeSelector  = annotationPrefix + "vpc-node-selector"
	annotationName          = annotationPrefix + "vpc-lb-name"
	annotationCheckProtocol = annotationPrefix + "vpc-health-check-protocol"
	annotationCheckPort     = annotationPrefix + "vpc-health-check-port"
	annotationCheckPath     = annotationPrefix + "vpc-health-check-path"
	annotationCheckDelay    = annotationPrefix + "vpc-health-check-delay"
	annotationCheckTimeout  = annotationPrefix + "vpc-health-check-timeout"
	annotationCheckRetries  = annotationPrefix + "vpc-health-check-retries"
	annotationCheckUDP      = annotationPrefix + "vpc-health-check-udp"
	annotationIdle          = annotationPrefix + "vpc-idle-connection-timeout"
	annotationQuota         = annotationPrefix + "vpc-member-quota"
	annotationPortRange     = annotationPrefix + "vpc-port-range"
	annotationDNSInstance   = annotationPrefix + "vpc-private-dns-instance-crn"
	annotationDNSZone       = annotationPrefix + "vpc-private-dns-zone-id"
	annotationGroups        = annotationPrefix + "vpc-security-group"

	// annotationRecord is ours: what the annotations of a Service set in the cloud.
	annotationRecord = "anyccm.io/ibm-applied"

	featureProxy = "proxy-protocol"
	featureNLB   = "nlb"
	featureALB   = "alb"

	typePublic, typePrivate                      = "public", "private"
	protocolTCP, protocolUDP                     = "tcp", "udp"
	protocolHTTP, protocolHTTPS                  = "http", "https"
	defaultDelay, defaultTimeout, defaultRetries = 5, 2, 2
	rootPath                                     = "/"
)

// settings holds the parsed annotations of a Service.
type settings struct {
	IPType                   string
	Features                 string
	Zone                     string
	Subnets                  string
	NodeSelector             string
	Name                     string
	CheckProtocol, CheckPath string
	CheckPort, CheckUDP      int
	Delay, Timeout, Retries  int
	Idle                     int
	Quota                    string
	Ranges                   string
	DNSInstance, DNSZone     string
	Groups                   string
	Record                   string

	// ranged is set if the Service has source ranges.
	ranged bool
}

func inPlaceRow(key, help string) schema.AnnotationRow {
	return schema.AnnotationRow{Key: key, Changes: schema.InPlace, Spec: schema.Spec{Help: help}}
}

func numberRow(key, help string, least, most float64, byDefault string) schema.AnnotationRow {
	r := inPlaceRow(key, help)
	r.Min, r.Max, r.DefaultHelp = &least, &most, byDefault
	return r
}

func (s settings) isPrivate() bool { return s.IPType != "" && s.IPType != typePublic }

// features returns the features of the annotation in lower case.
func (s settings) features() []string { return words(strings.ToLower(s.Features)) }

func (s settings) isNetwork() bool { return slices.Contains(s.features(), featureNLB) }
func (s settings) hasProxy() bool  { return slices.Contains(s.features(), featureProxy) }

// words splits a list at commas and ignores blanks.
func words(list string) []string {
	list = strings.Join(strings.Fields(list), "")
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

var (
	nameForm  = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	rangeForm = regexp.MustCompile(`^([0-9]{1,5})-([0-9]{1,5})$`)
)

func matches(form *regexp.Regexp, words string) func(string) error {
	return func(v string) error {
		if !form.MatchString(v) {
			return errors.New(words)
		}
		return nil
	}
}

// withFeature adds a feature of a portable annotation to the Service's own.
func withFeature(own, translated string) (merged string, contradict bool) {
	if own == "" || slices.Contains(words(strings.ToLower(own)), translated) {
		return translated + strings.TrimPrefix(","+own, ","+translated), false
	}
	return own + "," + translated, false
}

// Annotations is the table of annotations, with the names of IBM's own controller.
var Annotations = schema.Annotations[settings]{
	schema.StringAnnotation(func(s *settings) *string { return &s.IPType }, schema.AnnotationRow{
		Key: annotationIPType, Changes: schema.RefusedLater,
		Spec: schema.Spec{DefaultHelp: typePublic, Help: "public or private. Every other value means private, as with IBM's own controller, and a warning says so."},
	}).Serving(schema.Serves{
		Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: typePublic, portable.SchemeInternal: typePrivate},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Features }, inPlaceRow(annotationFeatures,
		"List of proxy-protocol, which sends its header (v1) to the nodes, and nlb, which makes a network load balancer when the Service gets its load balancer. "+
			"Other words have no effect.")).
		Serving(schema.Serves{
			Portable: portable.ProxyProtocol, Values: map[string]string{portable.ProxyNone: "", portable.ProxyV1: featureProxy}, Merge: withFeature,
		}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Zone }, inPlaceRow(annotationZone,
		"Zone of the load balancer, and of the nodes behind it. Its subnets follow at creation alone.")),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnets }, schema.AnnotationRow{
		Key: annotationSubnets, Changes: schema.InPlace, Spec: schema.Spec{Help: "Subnets of the load balancer: a list of names, IDs or networks (IPv4) in the VPC of the cluster. " +
			"That of a network load balancer cannot be changed later."},
	}).Serving(schema.Serves{Portable: portable.Subnet}),
	schema.StringAnnotation(func(s *settings) *string { return &s.NodeSelector }, inPlaceRow(annotationNodeSelector,
		"One label, key=value, of the nodes that receive traffic. Keys are those of ibm-cloud.kubernetes.io/ and of Kubernetes' well-known labels.")),
	schema.StringAnnotation(func(s *settings) *string { return &s.Name }, schema.AnnotationRow{
		Key: annotationName, Changes: schema.InPlace, Adopts: true,
		Spec: schema.Spec{
			Help: "Name of the load balancer, which keeps it when the Service is made again. With another name the Service gets another load balancer, " +
				"and the former one stays.",
			Check: matches(nameForm, "is no name of a load balancer: use up to 63 lower-case letters, digits and hyphens, a letter first and no hyphen last"),
		},
	}).Serving(schema.Serves{Portable: portable.Name, Judged: "names that IBM Cloud does not take"}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.CheckProtocol }, schema.AnnotationRow{
		Key: annotationCheckProtocol, Changes: schema.InPlace, Spec: schema.Spec{
			Choices: []string{protocolHTTP, protocolHTTPS, protocolTCP}, DefaultHelp: "http where externalTrafficPolicy is Local, else tcp", Help: "Protocol of the health check.",
		},
	}).Serving(schema.Serves{Portable: portable.CheckProtocol}),
	schema.IntAnnotation(func(s *settings) *int { return &s.CheckPort }, checkPortRow()).Serving(
		schema.Serves{Portable: portable.CheckPort, Translate: portableCheckPort}),
	schema.StringAnnotation(func(s *settings) *string { return &s.CheckPath }, checkPathRow()).
		Serving(schema.Serves{Portable: portable.CheckPath}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Delay }, numberRow(annotationCheckDelay,
		"Seconds between two health checks; more than the timeout.", 2, 60, "5")).Serving(schema.Serves{Portable: portable.CheckInterval, Unit: time.Second}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Timeout }, numberRow(annotationCheckTimeout,
		"Seconds after which a health check has failed.", 1, 59, "2")).Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Second}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Retries }, numberRow(annotationCheckRetries,
		"Health checks in a row that must fail before a node is left out.", 1, 10, "2")).Serving(schema.Serves{Portable: portable.UnhealthyThreshold}),
	schema.IntAnnotation(func(s *settings) *int { return &s.CheckUDP }, numberRow(annotationCheckUDP,
		"TCP port of the nodes that is checked for ports of UDP. Required for them where externalTrafficPolicy is Cluster.", 1, 65535, "none")),
	schema.IntAnnotation(func(s *settings) *int { return &s.Idle }, numberRow(annotationIdle,
		"Seconds after which a silent connection is closed; application load balancers alone.", 50, 7200, "as the cloud has it")).
		Serving(schema.Serves{Portable: portable.IdleTimeout, Unit: time.Second}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Quota }, quotaRow()),
	schema.StringAnnotation(func(s *settings) *string { return &s.Ranges }, inPlaceRow(annotationPortRange,
		"Ranges of ports, such as 30000-30010, of public network load balancers. Each begins with a port of the Service.")),
	schema.StringAnnotation(func(s *settings) *string { return &s.DNSInstance }, schema.AnnotationRow{
		Key: annotationDNSInstance, Changes: schema.AtCreation, Spec: schema.Spec{
			Help:  "CRN of a DNS Services instance that registers a private application load balancer, together with its zone.",
			Check: matches(regexp.MustCompile(`^crn:[!-~]{5,508}$`), "is no CRN"),
		},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.DNSZone }, schema.AnnotationRow{
		Key: annotationDNSZone, Changes: schema.AtCreation, Spec: schema.Spec{
			Help: "ID of the zone of that instance.",
			ID:   schema.NewIDForm("the ID of a DNS zone", "2d0f862b-67cc-41f3-b6a2-59860d0aa90e", `[a-z0-9-]{0,127}[a-z0-9]`),
		},
	}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Groups }, inPlaceRow(annotationGroups,
		"Security groups of the load balancer, in the place of those that it has: a list of up to 5 names or IDs in the VPC of the cluster. Their rules are yours.")).
		Serving(schema.Serves{Portable: portable.SecurityGroups}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Record }, schema.AnnotationRow{
		Key: annotationRecord, Changes: schema.Written, Spec: schema.Spec{
			Help:  "What annotations and source ranges set in the cloud, so that it is taken back when they are removed, and the load balancer of a chosen name. Ours.",
			Check: matches(recordForm, "is no list of what was set"),
		},
	}),
}

func checkPortRow() schema.AnnotationRow {
	r := numberRow(annotationCheckPort, "Port of the nodes that is checked.", 1, 65535, "the node port")
	r.Needs, r.Unread = &schema.Where{Key: annotationCheckProtocol, Present: true}, true
	return r
}

func checkPathRow() schema.AnnotationRow {
	r := inPlaceRow(annotationCheckPath, "Path of health checks by http and https.")
	r.DefaultHelp = rootPath
	r.Needs, r.Unread = &schema.Where{Key: annotationCheckProtocol, OneOf: []string{protocolHTTP, protocolHTTPS}}, true
	r.Check = matches(regexp.MustCompile(`^/[!-~]*$`), "is no path: begin with a slash, and leave out blanks")
	return r
}

func quotaRow() schema.AnnotationRow {
	r := inPlaceRow(annotationQuota, "Nodes of each zone that receive traffic where externalTrafficPolicy is Cluster: a number, or 0, disable or max for all.")
	r.DefaultHelp = "all"
	r.Check = matches(regexp.MustCompile(`^([0-9]{1,4}|disable|max)$`), "is no number, and neither disable nor max")
	return r
}

// portableCheckPort returns no annotation for the node port, which is the cloud's default.
func portableCheckPort(value string, a schema.Asked) (map[string]string, error) {
	if value == portable.NodePort {
		return map[string]string{}, nil
	}
	made := map[string]string{annotationCheckPort: value}
	if a.Own[annotationCheckProtocol] == "" && a.Portable[portable.CheckProtocol] == "" {
		made[annotationCheckProtocol] = protocolTCP // without which the port has no effect
	}
	return made, nil
}

func warnAbout(key, value, format string, args ...any) error {
	return &schema.Problem{Place: "annotation " + key, Value: value, Reason: fmt.Sprintf(format, args...), Warning: true}
}

func refuseFor(key, value, format string, args ...any) error {
	return &schema.Problem{Place: "annotation " + key, Value: value, Reason: fmt.Sprintf(format, args...)}
}

// parseSettings reads and validates a Service's annotations, without calls.
func parseSettings(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	s.ranged = len(service.Spec.LoadBalancerSourceRanges) > 0
	warned := []error{warnings}
	problems := []error{err}
	if s.IPType != "" && s.IPType != typePublic && s.IPType != typePrivate {
		warned = append(warned, warnAbout(annotationIPType, s.IPType, "is neither public nor private, and counts as private"))
	}
	for _, w := range s.features() {
		if !slices.Contains([]string{featureProxy, featureNLB, featureALB}, w) {
			warned = append(warned, warnAbout(annotationFeatures, w, "has no effect; known are proxy-protocol and nlb"))
		}
	}
	if _, _, bad := s.selector(); bad != nil {
		warned = append(warned, bad)
	}
	told, refused := serviceFields.Judge(service, map[string]string{annotationFeatures: strings.Join(s.features(), ",")})
	problems = append(problems, s.checkCombinations()...)
	problems = append(problems, s.checkPorts(service)...)
	return s, errors.Join(append(warned, schema.Problems(told)...)...), errors.Join(append(problems, refused)...)
}

// checkCombinations reports settings that contradict each other.
func (s settings) checkCombinations() (problems []error) {
	if s.hasProxy() && s.isNetwork() {
		problems = append(problems, refuseFor(annotationFeatures, s.Features, "a network load balancer sends no header of the PROXY protocol"))
	}
	if delay, timeout := s.delay(), s.timeout(); timeout >= delay {
		problems = append(problems, refuseFor(annotationCheckTimeout, strconv.Itoa(timeout),
			"is not shorter than the time between two health checks, %d s; set %s", delay, annotationCheckDelay))
	}
	if s.Idle != 0 && s.isNetwork() {
		problems = append(problems, refuseFor(annotationIdle, strconv.Itoa(s.Idle), "a network load balancer has no idle timeout"))
	}
	if (s.DNSInstance == "") != (s.DNSZone == "") {
		problems = append(problems, refuseFor(annotationDNSInstance, s.DNSInstance, "goes together with %s", annotationDNSZone))
	} else if s.DNSInstance != "" && (!s.isPrivate() || s.isNetwork()) {
		problems = append(problems, refuseFor(annotationDNSInstance, s.DNSInstance, "is for private application load balancers alone"))
	}
	if s.isNetwork() && s.isPrivate() && len(words(s.Subnets)) != 1 {
		problems = append(problems, refuseFor(annotationSubnets, s.Subnets,
			"is not one subnet without nodes of the cluster, which a private network load balancer needs"))
	}
	if s.isNetwork() && len(words(s.Subnets)) > 1 {
		problems = append(problems, refuseFor(annotationSubnets, s.Subnets, "a network load balancer is in one subnet"))
	} else if err := ibmlimits.Subnets.CheckNumber(len(words(s.Subnets))); err != nil {
		problems = append(problems, refuseFor(annotationSubnets, s.Subnets, "%s", err))
	}
	return problems
}

// checkPorts checks the ports and source ranges of the Service.
func (s settings) checkPorts(service *v1.Service) (problems []error) {
	for _, p := range service.Spec.Ports {
		if p.Protocol == v1.ProtocolUDP && s.isNetwork() && s.CheckUDP == 0 && !isLocal(service) {
			problems = append(problems, refuseFor(annotationCheckUDP, "", "is required with UDP and externalTrafficPolicy Cluster: name a port that answers TCP or HTTP"))
		}
	}
	if err := ibmlimits.Listeners.CheckNumber(len(service.Spec.Ports)); err != nil {
		problems = append(problems, &schema.Problem{Place: "spec.ports", Value: strconv.Itoa(len(service.Spec.Ports)), Reason: err.Error()})
	}
	problems = append(problems, s.checkAccess(service)...)
	_, err := s.ranges(service)
	return append(problems, err)
}

// checkService implements registry.Provider.CheckService.
func checkService(_ registry.Inputs, service *v1.Service) (warnings, err error) {
	_, warnings, err = parseSettings(service)
	return warnings, err
}

func (s settings) delay() int   { return cmp.Or(s.Delay, defaultDelay) }
func (s settings) timeout() int { return cmp.Or(s.Timeout, defaultTimeout) }
func (s settings) retries() int { return cmp.Or(s.Retries, defaultRetries) }

// quota returns how many nodes of each zone receive traffic; 0 means all.
func (s settings) quota() int {
	n, _ := strconv.Atoi(s.Quota) // disable and max mean all
	return n
}

// isLocal reports whether traffic goes only to nodes with a pod of the Service.
func isLocal(service *v1.Service) bool {
	return service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && service.Spec.HealthCheckNodePort > 0
}

// selector returns the label of the nodes that receive traffic. Like with IBM's own controller, a malformed or unknown one has no effect.
func (s settings) selector() (key, value string, err error) {
	if s.NodeSelector == "" {
		return "", "", nil
	}
	text := strings.Join(strings.Fields(s.NodeSelector), "")
	key, value, pair := strings.Cut(text, "=")
	if !pair || strings.Contains(value, "=") {
		return "", "", warnAbout(annotationNodeSelector, s.NodeSelector, "has no effect: it is not of the form key=value")
	}
	if !slices.Contains(selectorKeys(), key) {
		return "", "", warnAbout(annotationNodeSelector, s.NodeSelector, "has no effect: the key is none of %s", strings.Join(selectorKeys(), ", "))
	}
	return key, value, nil
}

func selectorKeys() []string {
	keys := []string{
		v1.LabelArchStable, v1.LabelHostname, v1.LabelOSStable, v1.LabelInstanceTypeStable, v1.LabelTopologyRegion, v1.LabelTopologyZone,
	}
	for _, end := range []string{
		"internal-ip", "machine-type", "os", "region", "subnet-id", "worker-id", "worker-pool-id", "worker-pool-name", "worker-version", "zone",
	} {
		keys = append(keys, labelPrefix+end)
	}
	return keys
}

// coveredPort returns another port of the Service inside a range of ports, or 0.
func coveredPort(service *v1.Service, from, to int) int32 {
	begins := func(protocol v1.Protocol) bool {
		return slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool { return int(p.Port) == from && p.Protocol == protocol })
	}
	for _, p := range service.Spec.Ports {
		if int(p.Port) > from && int(p.Port) <= to && begins(p.Protocol) {
			return p.Port
		}
	}
	return 0
}

// ranges returns the last port of each range by its first port.
func (s settings) ranges(service *v1.Service) (map[int32]int32, error) {
	if s.Ranges == "" {
		return map[int32]int32{}, nil
	}
	bad := func(why string) error { return refuseFor(annotationPortRange, s.Ranges, "%s", why) }
	if !s.isNetwork() || s.isPrivate() {
		return nil, bad("is for public network load balancers alone")
	}
	found := map[int32]int32{}
	type span struct{ from, to int }
	var all []span
	for _, one := range words(s.Ranges) {
		m := rangeForm.FindStringSubmatch(one)
		if m == nil {
			return nil, bad(`is no list of ranges such as "30000-30010"`)
		}
		from, _ := strconv.Atoi(m[1])
		to, _ := strconv.Atoi(m[2])
		switch {
		case from < 1 || to > 65535 || from >= to:
			return nil, bad(one + " is no range: the first port must be less than the last, and both from 1 to 65535")
		case !slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool { return int(p.Port) == from }):
			return nil, bad(fmt.Sprintf("no port of the Service is %d, with which %s begins", from, one))
		case slices.ContainsFunc(all, func(o span) bool { return from <= o.to && o.from <= to }):
			return nil, bad(one + " overlaps with another range")
		}
		all = append(all, span{from, to})
		found[int32(from)] = int32(to) //nolint:gosec // bounded above
	}
	for _, o := range all {
		if p := coveredPort(service, o.from, o.to); p != 0 {
			return nil, bad(fmt.Sprintf("%d-%d covers port %d, which is another port of the Service", o.from, o.to, p))
		}
	}
	return found, nil
}
