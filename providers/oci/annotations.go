package oci

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	annotationPrefix   = "service.beta.kubernetes.io/oci-load-balancer-"
	oraclePrefix       = "oci.oraclecloud.com/"
	nlbPrefix          = "oci-network-load-balancer.oraclecloud.com/"
	annotationInternal = annotationPrefix + "internal"
	annotationShape    = annotationPrefix + "shape"
	annotationShapeMin = annotationPrefix + "shape-flex-min"
	annotationShapeMax = annotationPrefix + "shape-flex-max"
	annotationSubnet1  = annotationPrefix + "subnet1"
	annotationSubnet2  = annotationPrefix + "subnet2"

	// annotationPlaced is ours: the compartment of a load balancer.
	annotationPlaced = "anyccm.io/oci-load-balancer-compartment"

	annotationIdle       = annotationPrefix + "connection-idle-timeout"
	annotationProxy      = annotationPrefix + "connection-proxy-protocol-version"
	annotationProtocol   = annotationPrefix + "backend-protocol"
	annotationRetries    = annotationPrefix + "health-check-retries"
	annotationInterval   = annotationPrefix + "health-check-interval"
	annotationTimeout    = annotationPrefix + "health-check-timeout"
	annotationListMode   = annotationPrefix + "security-list-management-mode"
	annotationRuleMode   = oraclePrefix + "security-rule-management-mode"
	annotationGroups     = oraclePrefix + "oci-network-security-groups"
	annotationPolicy     = oraclePrefix + "loadbalancer-policy"
	annotationFreeform   = oraclePrefix + "initial-freeform-tags-override"
	annotationDefined    = oraclePrefix + "initial-defined-tags-override"
	annotationSelector   = oraclePrefix + "node-label-selector"
	annotationIPMode     = oraclePrefix + "ingress-ip-mode"
	annotationType       = oraclePrefix + "load-balancer-type"
	annotationSSLPorts   = annotationPrefix + "ssl-ports"
	annotationTLSSecret  = annotationPrefix + "tls-secret"
	annotationBackSecret = annotationPrefix + "tls-backendset-secret"
	annotationTLS        = oraclePrefix + "oci-load-balancer-listener-ssl-config"
	annotationBackTLS    = oraclePrefix + "oci-load-balancer-backendset-ssl-config"
	annotationBackGroups = oraclePrefix + "oci-backend-network-security-group"
	annotationRuleSets   = oraclePrefix + "oci-load-balancer-rule-sets"
	// annotationAddress is ours: Oracle's own controller has only the field of the Service.
	annotationAddress     = "anyccm.io/oci-reserved-address"
	modeAll, modeFrontend = "All", "Frontend"
	modeGroups            = "NSG"
	protocolGRPC          = "GRPC"
	cipherHTTP2           = "oci-default-http2-ssl-cipher-suite-v1"
	typeBalancer          = "lb"
	modeNone              = "None"
	shapeFlexible         = "flexible"
	usualShape            = "100Mbps"
	protocolTCP           = "TCP"
	protocolHTTP          = "HTTP"
	roundRobin            = "ROUND_ROBIN"
	leastConnections      = "LEAST_CONNECTIONS"
	ipHash                = "IP_HASH"
	usualRetries          = 3
	usualInterval         = 10000
	usualTimeout          = 3000
	leastInterval         = 1000
	mostInterval          = 1800000
	leastBandwidth        = 10
	mostBandwidth         = 8192
	idleTCP, idleHTTP     = 300, 60
	proxyVersion1, proxy2 = 1, 2
)

// settings holds the parsed annotations of a Service.
type settings struct {
	Internal                   bool
	Shape, ShapeMin, ShapeMax  string
	Subnet1, Subnet2           string
	Idle, Proxy                int
	Protocol                   string
	Retries, Interval, Timeout int
	ListMode, RuleMode         string
	Groups                     []string
	Policy                     string
	Account, Freeform, Defined string
	Selector                   string
	IPMode, Type               string
	Address, OwnCompartment    string
	Placed                     string
	SSLPorts                   []int
	TLSSecret, BackSecret      string
	TLSText, BackTLSText       string
	BackGroups                 []string
	RuleSetText                string

	// tlsEnds is set if the annotation of the ports at which TLS ends is present.
	tlsEnds bool
	// tls and backTLS are the settings of TLS to clients and to nodes.
	tls, backTLS tlsConfig
	// ruleSets holds the rule sets by name. It is nil if existing ones stay as they are.
	ruleSets map[string]document
	// mode says how security rules are managed.
	mode string
	// addressPlace is the origin of Address: an annotation, or a field of the Service.
	addressPlace string
	// nlb is set for network load balancers; the fields below are theirs alone.
	nlb                    bool
	Preserve, ExternalOnly bool
	PPv2                   string
	PrivateIPv4, IPv6      string
	// The former names of Freeform and Defined.
	OldFreeform, OldDefined string
	// preserve is set if nodes see the addresses of clients.
	preserve, ipv6, ipv6Only bool
}

// tlsConfig holds settings of TLS. The cloud chooses what is empty.
type tlsConfig struct {
	CipherSuiteName string
	Protocols       []string
}

func inPlace(key, help string) schema.AnnotationRow {
	return schema.AnnotationRow{Key: key, Changes: schema.InPlace, Spec: schema.Spec{Help: help}}
}

func atCreation(key, help string) schema.AnnotationRow {
	return schema.AnnotationRow{Key: key, Changes: schema.AtCreation, Spec: schema.Spec{Help: help}}
}

func refusedLater(key, help string) schema.AnnotationRow {
	return schema.AnnotationRow{Key: key, Changes: schema.RefusedLater, Spec: schema.Spec{Help: help}}
}

func intRow(key, help string, least, most float64, byDefault string) schema.AnnotationRow {
	r := inPlace(key, help)
	r.Min, r.Max, r.DefaultHelp = &least, &most, byDefault
	return r
}

func withChoices(r schema.AnnotationRow, anyCase bool, byDefault string, of ...string) schema.AnnotationRow {
	r.Choices, r.AnyCase, r.DefaultHelp = of, anyCase, byDefault
	return r
}

func withCheck(r schema.AnnotationRow, check func(string) error) schema.AnnotationRow {
	r.Check = check
	return r
}

var ocidForm = schema.NewIDForm("an OCID", "ocid1.subnet.oc1.phx.aaaaexample", ocidPattern)

func asOCID(r schema.AnnotationRow) schema.AnnotationRow {
	r.ID = ocidForm
	return r
}

// addressRule matches reserved addresses.
var addressRule = schema.Must(`^\s*`+schema.IPv4Pattern+`\s*$`, "is no address of IPv4")

// Annotations is the table of annotations, with the names of Oracle's own controller.
var Annotations = schema.Annotations[settings]{
	schema.BoolAnnotation(func(s *settings) *bool { return &s.Internal }, atCreation(annotationInternal, "The load balancer has a private address alone.")).
		Serving(schema.Serves{Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: "false", portable.SchemeInternal: "true"}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Shape }, inPlace(annotationShape,
		"Shape: flexible, or one of a fixed bandwidth, which tenancies have only of old. 100Mbps where the annotation is absent and the shape is not flexible.")),
	schema.StringAnnotation(func(s *settings) *string { return &s.ShapeMin }, withCheck(inPlace(annotationShapeMin,
		"Least bandwidth of a flexible shape in Mbps, from 10 to 8192."), bandwidthForm)),
	schema.StringAnnotation(func(s *settings) *string { return &s.ShapeMax }, withCheck(inPlace(annotationShapeMax,
		"Most bandwidth of a flexible shape in Mbps, from 10 to 8192."), bandwidthForm)),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnet1 }, asOCID(atCreation(annotationSubnet1,
		"OCID of the first subnet, in the place of loadBalancer.subnet1."))).
		Serving(schema.Serves{
			Portable: portable.Subnet, Translate: portableSubnets, Rivals: []string{annotationSubnet2}, Only: "one or two, by their OCIDs",
			Rules: []schema.Rule{schema.Must(`^\s*`+ocidPattern+`\s*(?:,\s*`+ocidPattern+`\s*)?$`, "is not one OCID, or two separated by a comma")},
		}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Subnet2 }, asOCID(atCreation(annotationSubnet2,
		"OCID of the second subnet, in the place of loadBalancer.subnet2."))),
	schema.IntAnnotation(func(s *settings) *int { return &s.Idle }, intRow(annotationIdle,
		"Seconds after which a silent connection is closed.", 1, 7200, "as the cloud has it")).
		Serving(schema.Serves{Portable: portable.IdleTimeout, Unit: time.Second}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Proxy }, intRow(annotationProxy,
		"Version of the PROXY protocol's header that is sent to the nodes: 1 or 2.", proxyVersion1, proxy2, "none")).
		Serving(schema.Serves{Portable: portable.ProxyProtocol, Values: map[string]string{
			portable.ProxyNone: "", portable.ProxyV1: "1", portable.ProxyV2: "2",
		}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Protocol }, withCheck(inPlace(annotationProtocol,
		"Protocol of all listeners: TCP, HTTP, or GRPC, which needs TLS, in any case."), protocolForm)),
	schema.IntAnnotation(func(s *settings) *int { return &s.Retries }, intRow(annotationRetries,
		"Health checks in a row that must fail before a node is left out.", 1, 100, "3")).Serving(schema.Serves{Portable: portable.UnhealthyThreshold}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Interval }, intRow(annotationInterval,
		"Milliseconds between two health checks.", leastInterval, mostInterval, "10000")).
		Serving(schema.Serves{Portable: portable.CheckInterval, Unit: time.Millisecond}),
	schema.IntAnnotation(func(s *settings) *int { return &s.Timeout }, intRow(annotationTimeout,
		"Milliseconds after which a health check has failed.", 1, 600000, "3000")).
		Serving(schema.Serves{Portable: portable.CheckTimeout, Unit: time.Millisecond}),
	schema.EnumAnnotation(func(s *settings) *string { return &s.ListMode }, asLenient(withChoices(inPlace(annotationListMode,
		"Which rules of security lists are managed: those of the subnets of the load balancer and of the nodes, those alone by which clients come in, or none."),
		false, "as the cloud config says, or All", modeAll, modeFrontend, modeNone))),
	schema.StringAnnotation(func(s *settings) *string { return &s.RuleMode }, withCheck(inPlace(annotationRuleMode,
		"The same for security lists (SL-All, SL-Frontend) and network security groups (NSG), and None. It wins."), ruleModeForm)),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.Groups }, asOCID(inPlace(annotationGroups,
		"OCIDs of up to five network security groups of the load balancer; without any, those that somebody attached are taken off."))).
		Serving(schema.Serves{Portable: portable.SecurityGroups, Only: "by their OCIDs"}),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.BackGroups }, asOCID(inPlace(annotationBackGroups,
		"OCIDs of the network security groups of the nodes, which get rules where the rules are managed by NSG."))),
	schema.IntListAnnotation(func(s *settings) *[]int { return &s.SSLPorts }, intRow(annotationSSLPorts,
		"Ports of the Service at which TLS ends. Without this annotation none does, and no Secret is read.", 1, 65535, "")).
		Serving(schema.Serves{Portable: portable.TLSPorts, Translate: portable.Nothing}),
	schema.StringAnnotation(func(s *settings) *string { return &s.TLSSecret }, withCheck(inPlace(annotationTLSSecret,
		"Secret with the certificate of the listeners: its name, after a namespace and a slash where that is one of `OCI_SECRET_NAMESPACES`."), secretForm)).
		Serving(schema.Serves{Portable: portable.Certificate, Rules: []schema.Rule{schema.Must(`^`+portable.SecretPrefix,
			"is no Secret, and certificates of load balancers are uploaded; use "+portable.SecretPrefix+"<name>")}, Translate: portableCertificate, Only: "secret:<name>"}),
	schema.StringAnnotation(func(s *settings) *string { return &s.BackSecret }, withCheck(inPlace(annotationBackSecret,
		"Secret with the certificate of the backend sets of the ports in ssl-ports, to which the load balancer then speaks TLS; named in the same way."), secretForm)),
	schema.StringAnnotation(func(s *settings) *string { return &s.TLSText }, withCheck(inPlace(annotationTLS,
		`Cipher suite and protocols of listeners with TLS, as {"CipherSuiteName": "…", "Protocols": ["TLSv1.2"]}.`), tlsForm)),
	schema.StringAnnotation(func(s *settings) *string { return &s.BackTLSText }, withCheck(inPlace(annotationBackTLS,
		"The same for backend sets with TLS."), tlsForm)),
	schema.StringAnnotation(func(s *settings) *string { return &s.RuleSetText }, withCheck(inPlace(annotationRuleSets,
		`Rule sets of all listeners, as JSON: {"name": {"items": [{"action": "…"}]}}. Empty removes all; without it they are left alone.`),
		jsonForm[map[string]ruleSet]("is not JSON of rule sets"))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Address }, schema.AnnotationRow{
		Key: annotationAddress, Changes: schema.RefusedLater,
		Spec: schema.Spec{Rules: []schema.Rule{addressRule}, Help: "Reserved public address to use. It wins over spec.loadBalancerIP, which does the same."},
	}).
		Serving(schema.Serves{Portable: portable.Address, Only: "one of IPv4, reserved and public"}),
	schema.StringAnnotation(func(s *settings) *string { return &s.OwnCompartment }, asOCID(atCreation(annotationCompartment,
		"Compartment of the load balancer, in the place of the cloud config's."))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Placed }, asOCID(schema.AnnotationRow{
		Key: annotationPlaced, Changes: schema.Written, Spec: schema.Spec{Help: "Compartment of a load balancer that is not in the cloud config's. Ours."},
	})),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Policy }, withChoices(inPlace(annotationPolicy,
		"How connections are spread over nodes."), false, roundRobin, roundRobin, leastConnections, ipHash)).
		Serving(schema.Serves{Portable: portable.Algorithm, Values: map[string]string{
			portable.RoundRobin: roundRobin, portable.LeastConnections: leastConnections, portable.SourceIP: ipHash,
		}}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Account }, withCheck(inPlace(annotationAccount,
		"Not served yet: a service account whose credential calls for this Service."), func(string) error {
		return errors.New("is not served yet: the credential of the cloud config calls for all Services")
	})),
	schema.StringAnnotation(func(s *settings) *string { return &s.Freeform }, withCheck(atCreation(annotationFreeform,
		"Free-form tags as JSON, in the place of all tags of the cloud config."), freeformTags)).
		Serving(schema.Serves{Portable: portable.Tags, Translate: portableTags}),
	schema.StringAnnotation(func(s *settings) *string { return &s.Defined }, withCheck(atCreation(annotationDefined,
		"Defined tags as JSON, in the place of all tags of the cloud config."), jsonForm[map[string]map[string]any]("is not JSON of defined tags"))),
	schema.StringAnnotation(func(s *settings) *string { return &s.Selector }, withCheck(inPlace(annotationSelector,
		"Label selector of the nodes that receive traffic."), selectorForm)),
	schema.EnumAnnotation(func(s *settings) *string { return &s.IPMode }, withChoices(inPlace(annotationIPMode,
		"How nodes reach the address that the status shows: proxy, through the load balancer, or vip, directly."), true, "none", "proxy", "vip")),
	schema.EnumAnnotation(func(s *settings) *string { return &s.Type }, withChoices(refusedLater(annotationType,
		"Kind of the load balancer: lb, or nlb for a network load balancer."), true, typeBalancer, typeBalancer, typeNLB)),
}.Needing(schema.Given(annotationSSLPorts), annotationTLSSecret, annotationBackSecret, annotationTLS, annotationBackTLS)

func protocolForm(v string) error {
	switch strings.ToUpper(v) {
	case protocolTCP, protocolHTTP, protocolGRPC:
		return nil
	}
	return errors.New("is not one of TCP, HTTP, GRPC")
}

func asLenient(r schema.AnnotationRow) schema.AnnotationRow {
	r.Lenient = true
	return r
}

func ruleModeForm(v string) error {
	if _, ok := ruleModes()[strings.ToUpper(v)]; !ok && v != modeNone {
		return errors.New("is not one of SL-All, SL-Frontend, NSG, None")
	}
	return nil
}

// ruleModes returns the modes by the annotation's values, which are case-insensitive.
func ruleModes() map[string]string {
	return map[string]string{"SL-ALL": modeAll, "SL-FRONTEND": modeFrontend, "NSG": modeGroups}
}

var secretName = regexp.MustCompile(`^(?:[a-z0-9-]+/)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$`)

func secretForm(v string) error {
	if !secretName.MatchString(v) {
		return errors.New("is no name of a Secret, which may begin with a namespace and a slash")
	}
	return nil
}

func tlsForm(v string) error { return jsonForm[tlsConfig]("is not a configuration of TLS in JSON")(v) }

// ruleSet is a rule set of the annotation.
type ruleSet struct {
	Items []document `json:"items"`
}

// portableCertificate makes TLS end at the requested ports, by a Secret.
func portableCertificate(value string, a schema.Asked) (map[string]string, error) {
	var ports []string
	for _, p := range a.PortsNamed(a.Portable[portable.TLSPorts]) {
		ports = append(ports, strconv.Itoa(int(p.Number)))
	}
	return map[string]string{
		annotationTLSSecret: strings.TrimPrefix(value, portable.SecretPrefix), annotationSSLPorts: strings.Join(ports, ","),
	}, nil
}

// portableSubnets divides a list of subnets into two annotations.
func portableSubnets(value string, _ schema.Asked) (map[string]string, error) {
	first, second, _ := strings.Cut(value, ",")
	all := map[string]string{annotationSubnet1: strings.TrimSpace(first)}
	if second = strings.TrimSpace(second); second != "" {
		all[annotationSubnet2] = second
	}
	return all, nil
}

func portableTags(value string, _ schema.Asked) (map[string]string, error) {
	tags := map[string]string{}
	for one := range strings.SplitSeq(value, ",") {
		key, v, _ := strings.Cut(one, "=")
		tags[strings.TrimSpace(key)] = strings.TrimSpace(v)
	}
	text, err := json.Marshal(tags)
	return map[string]string{annotationFreeform: string(text)}, err
}

func selectorForm(v string) error {
	_, err := labels.Parse(v)
	return err
}

// freeformTags checks the annotation's tags. None may be the mark of a cluster.
func freeformTags(v string) error {
	all := map[string]string{}
	if err := json.Unmarshal([]byte(v), &all); err != nil {
		return fmt.Errorf("is not JSON of free-form tags: %w", err)
	}
	for key := range all {
		if strings.EqualFold(key, tagCluster) {
			return fmt.Errorf("may not set tag %q, by which clusters know what is theirs; choose another one", key)
		}
	}
	return nil
}

// checkFreeform refuses free-form tags that the cloud would refuse.
func checkFreeform(all map[string]string) error {
	err := ocilimits.FreeformTags.CheckNumber(len(all))
	for _, key := range sortedKeys(all) {
		err = cmp.Or(err, ocilimits.TagKey.CheckText(key), ocilimits.TagValue.WithName("the value of tag "+key).CheckText(all[key]))
	}
	return err
}

func jsonForm[T any](words string) func(string) error {
	return func(v string) error {
		var into T
		if err := json.Unmarshal([]byte(v), &into); err != nil {
			return fmt.Errorf("%s: %w", words, err)
		}
		return nil
	}
}

var separators = regexp.MustCompile(`[^0-9A-Za-z]+`)

// bandwidth parses a bandwidth, and limits it to what the cloud takes.
func bandwidth(v string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(separators.ReplaceAllString(v, ""), "Mbps"))
	return min(max(n, leastBandwidth), mostBandwidth), err
}

func bandwidthForm(v string) error {
	if _, err := bandwidth(v); err != nil {
		return errors.New("is not a bandwidth; use a form such as 100Mbps")
	}
	return nil
}

func refuseFor(key, value, format string, args ...any) error {
	return &schema.Problem{Place: "annotation " + key, Value: value, Reason: fmt.Sprintf(format, args...)}
}

// requestedAddress returns the reserved address that a Service requests, and the annotation or field that does.
func requestedAddress(annotated string, service *v1.Service) (address, place string) {
	if address = strings.TrimSpace(annotated); address != "" {
		return address, "annotation " + annotationAddress
	}
	return service.Spec.LoadBalancerIP, portable.FieldLoadBalancerIP
}

// parseByType parses the annotations for the kind of load balancer that the Service asks for.
func parseByType(service *v1.Service, mode string) (s settings, warnings, err error) {
	if isNLBService(service) {
		return parseNLB(service)
	}
	return parseSettings(service, mode)
}

// parseSettings parses a Service's annotations, and makes all checks that need no call. mode is the management of security rules if no
// annotation names one.
func parseSettings(service *v1.Service, mode string) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	problems := append(checkLengths(service, NLBAnnotations.Rows()), err)
	problems = append(problems, s.complete(service, mode)...)
	problems = append(problems, s.judgeGroups(annotationGroups)...)
	problems = append(problems, s.judgeTLS(service)...)
	problems = append(problems, s.judgeFields(service, "")...)
	return s, errors.Join(warnings, s.warnOfSources(service), services.WarnOfPorts(service, ocilimits.Listeners)), errors.Join(problems...)
}

// warnOfSources warns of source ranges that keep nobody out.
func (s settings) warnOfSources(service *v1.Service) error {
	ranges, _ := sourcesOf(service) // what cannot be read is refused elsewhere
	if len(ranges) == 0 || s.mode != modeNone || admitsEverybody(ranges) {
		return nil
	}
	return &schema.Problem{
		Place: "spec.loadBalancerSourceRanges", Value: strings.Join(ranges, ","), Warning: true,
		Reason: "has no effect: security rules keep clients out, and those of the Service are made by hand (mode " + modeNone + ")",
	}
}

// checkLengths reports annotations for the other kind of load balancers that are too long. They are not parsed otherwise, but the admission
// policy refuses long values on any Service.
func checkLengths(service *v1.Service, others []schema.AnnotationRow) (problems []error) {
	for _, row := range others {
		if n := utf8.RuneCountInString(service.Annotations[row.Key]); n > row.Longest() && !slices.Contains(sharedKeys(), row.Key) {
			problems = append(problems, &schema.Problem{
				Place: "annotation " + row.Key, Reason: fmt.Sprintf("is %d characters long; use at most %d", n, row.Longest()),
			})
		}
	}
	return problems
}

const annotationAccount = oraclePrefix + "workload-service-account"

// complete sets the fields that follow from the annotations.
func (s *settings) complete(service *v1.Service, mode string) (problems []error) {
	_, s.tlsEnds = service.Annotations[annotationSSLPorts]
	// The table has checked these texts, which may also be empty.
	_ = json.Unmarshal([]byte(s.TLSText), &s.tls)
	_ = json.Unmarshal([]byte(s.BackTLSText), &s.backTLS)
	if s.protocol() == protocolGRPC && s.tls.CipherSuiteName == "" {
		s.tls.CipherSuiteName = cipherHTTP2
	}
	if _, has := service.Annotations[annotationRuleSets]; has {
		sets := map[string]ruleSet{}
		_ = json.Unmarshal([]byte(s.RuleSetText), &sets)
		s.ruleSets = map[string]document{}
		for _, name := range sortedKeys(sets) {
			problems = append(problems, s.judgeRuleSet(name, sets[name])...)
			s.ruleSets[name] = jsondoc.Clone(document{"items": sets[name].Items})
		}
	}
	s.Address, s.addressPlace = requestedAddress(s.Address, service)
	s.mode = s.modeOf(mode)
	return problems
}

// modeOf returns the management of security rules: that of an annotation, of the cloud config, or All.
func (s settings) modeOf(configured string) string {
	switch {
	case s.RuleMode == modeNone:
		return modeNone
	case s.RuleMode != "":
		return cmp.Or(ruleModes()[strings.ToUpper(s.RuleMode)], modeAll)
	}
	return cmp.Or(s.ListMode, configured, modeAll)
}

// judgeRuleSet refuses a rule set that the cloud would refuse for its size.
func (s settings) judgeRuleSet(name string, set ruleSet) (problems []error) {
	if len(set.Items) == 0 {
		problems = append(problems, refuseFor(annotationRuleSets, s.RuleSetText, "rule set %q has no items", name))
	}
	nameLimit := ocilimits.RuleSetName.WithName(fmt.Sprintf("the name of rule set %q", name))
	if err := cmp.Or(nameLimit.CheckText(name), ocilimits.RuleSetItems.CheckNumber(len(set.Items))); err != nil {
		problems = append(problems, refuseFor(annotationRuleSets, fmt.Sprintf("%.40s…", s.RuleSetText), "is too much: %v", err))
	}
	return problems
}

// judgeGroups limits the number of network security groups.
func (s settings) judgeGroups(key string) (problems []error) {
	limit := ocilimits.Groups.Max
	if s.mode == modeGroups {
		limit-- // one is the Service's own
	}
	if n := len(s.groups()); n > limit {
		problems = append(problems, refuseFor(key, strings.Join(s.Groups, ","),
			"holds %d groups; a load balancer takes %d", n, limit))
	}
	return problems
}

func (s settings) judgeTLS(service *v1.Service) (problems []error) {
	for _, p := range s.SSLPorts {
		if !slices.ContainsFunc(service.Spec.Ports, func(o v1.ServicePort) bool { return int(o.Port) == p }) {
			continue // Oracle's own controller takes it for nothing, too
		}
		if s.TLSSecret == "" && s.BackSecret == "" {
			problems = append(problems, refuseFor(annotationSSLPorts, strconv.Itoa(p), "needs %s: without a certificate TLS cannot end there", annotationTLSSecret))
			break
		}
	}
	if s.protocol() != protocolGRPC {
		return problems
	}
	for _, p := range service.Spec.Ports {
		if !s.endsTLS(p) {
			problems = append(problems, refuseFor(annotationProtocol, s.Protocol, "needs TLS on each port; port %d needs %s and %s",
				p.Port, annotationSSLPorts, annotationTLSSecret))
			break
		}
	}
	return problems
}

// judgeFields checks the fields of the Service; word is the kind of load balancer.
func (s settings) judgeFields(service *v1.Service, word string) (problems []error) {
	field := func(place, value, format string, args ...any) {
		problems = append(problems, &schema.Problem{Place: place, Value: value, Reason: fmt.Sprintf(format, args...)})
	}
	_, refused := serviceFields.Judge(service, map[string]string{annotationType: word})
	problems = append(problems, refused)
	switch err := familyForm(netip.Addr.Is4)(s.Address); {
	case s.Address == "":
	case err != nil:
		field(s.addressPlace, s.Address, "is not an IPv4 address")
	case s.Internal:
		field(s.addressPlace, s.Address, "is a reserved public address, which an internal load balancer cannot have; remove it, or make the load balancer public")
	}
	if _, err := sourcesOf(service); err != nil {
		field("spec.loadBalancerSourceRanges", strings.Join(service.Spec.LoadBalancerSourceRanges, ","), "%v", err)
	}
	return problems
}

func admitsEverybody(sources []string) bool {
	return slices.Contains(sources, everybody) || slices.Contains(sources, everybodyIPv6)
}

// checkService implements registry.Provider.CheckService.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	mode := ""
	if len(in.File) > 0 { // otherwise the cloud config is unknown
		keys, _, _ := readFile(in.File) // its faults are reported at start
		mode = keys[keyListMode]
	}
	s, warnings, err := parseByType(service, mode)
	if err == nil && !isNLBService(service) {
		_, _, err = s.shapeFor(nil)
	}
	if err == nil {
		err = checkFreeform(s.ownTags().Freeform) // of a load balancer that is to be made
	}
	return warnings, err
}

// groups returns the network security groups, each once, sorted.
func (s settings) groups() []string {
	all := append([]string{}, s.Groups...)
	slices.Sort(all)
	return slices.Compact(all)
}
