package aws

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	kitsources "github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Names of the annotations, as AWS's own controller has them.
const (
	annotationPrefix = "service.beta.kubernetes.io/aws-load-balancer-"

	annotationType               = annotationPrefix + "type"
	annotationInternal           = annotationPrefix + "internal"
	annotationProxyProtocol      = annotationPrefix + "proxy-protocol"
	annotationAccessLog          = annotationPrefix + "access-log-enabled"
	annotationAccessLogInterval  = annotationPrefix + "access-log-emit-interval"
	annotationAccessLogBucket    = annotationPrefix + "access-log-s3-bucket-name"
	annotationAccessLogPrefix    = annotationPrefix + "access-log-s3-bucket-prefix"
	annotationDraining           = annotationPrefix + "connection-draining-enabled"
	annotationDrainingTimeout    = annotationPrefix + "connection-draining-timeout"
	annotationIdleTimeout        = annotationPrefix + "connection-idle-timeout"
	annotationCrossZone          = annotationPrefix + "cross-zone-load-balancing-enabled"
	annotationExtraGroups        = annotationPrefix + "extra-security-groups"
	annotationGroups             = annotationPrefix + "security-groups"
	annotationCertificate        = annotationPrefix + "ssl-cert"
	annotationTLSPorts           = annotationPrefix + "ssl-ports"
	annotationTLSPolicy          = annotationPrefix + "ssl-negotiation-policy"
	annotationBackendProtocol    = annotationPrefix + "backend-protocol"
	annotationTags               = annotationPrefix + "additional-resource-tags"
	annotationCheckProtocol      = annotationPrefix + "healthcheck-protocol"
	annotationCheckPort          = annotationPrefix + "healthcheck-port"
	annotationCheckPath          = annotationPrefix + "healthcheck-path"
	annotationHealthyThreshold   = annotationPrefix + "healthcheck-healthy-threshold"
	annotationUnhealthyThreshold = annotationPrefix + "healthcheck-unhealthy-threshold"
	annotationCheckTimeout       = annotationPrefix + "healthcheck-timeout"
	annotationCheckInterval      = annotationPrefix + "healthcheck-interval"
	annotationTargetAttributes   = annotationPrefix + "target-group-attributes"
	annotationEIPs               = annotationPrefix + "eip-allocations"
	annotationPrivateAddresses   = annotationPrefix + "private-ipv4-addresses"
	annotationNodeLabels         = annotationPrefix + "target-node-labels"
	annotationSubnets            = annotationPrefix + "subnets"
	annotationSourceRanges       = "service.beta.kubernetes.io/load-balancer-source-ranges"
)

// Values of the annotation that chooses the kind of load balancer; everything else means a classic one.
const (
	typeNLB      = "nlb"
	typeNLBIP    = "nlb-ip"
	typeExternal = "external"
)

const (
	// Protocols of backends and of health checks.
	textHTTP  = "http"
	textHTTPS = "https"
	textSSL   = "ssl"
	textTCP   = "tcp"

	trafficPort = "traffic-port"

	attributePreserveClient = "preserve_client_ip.enabled"
	attributeProxyV2        = "proxy_protocol_v2.enabled"

	textTrue  = "true"
	textFalse = "false"
)

// settings holds the parsed annotations of a Service.
type settings struct {
	network  bool
	internal bool
	ranges   []netip.Prefix
	// tags, targetLabels and targetAttributes are the annotations taken apart.
	tags, targetLabels, targetAttributes map[string]string

	Type, Internal, ProxyProtocol                   string
	AccessLog, Draining, CrossZone                  bool
	AccessLogInterval, DrainingTimeout, IdleTimeout int
	AccessLogBucket, AccessLogPrefix                string
	ExtraGroups, Groups                             []string
	Certificate, TLSPorts, TLSPolicy                string
	BackendProtocol                                 string
	Tags, TargetAttributes, NodeLabels              string
	CheckProtocol, CheckPort, CheckPath             string
	Healthy, Unhealthy, CheckTimeout, CheckInterval int
	EIPs, PrivateAddresses, Subnets, SourceRanges   []string
}

func textRow(
	key, help string, changes schema.Mutability, at func(*settings) *string, check func(string) error,
) schema.Annotation[settings] {
	spec := schema.Spec{Help: help, Check: checkLength(check)}
	return schema.StringAnnotation(at, schema.AnnotationRow{Key: key, Changes: changes, Spec: spec})
}

func listRow(
	key, help string, changes schema.Mutability, at func(*settings) *[]string, check func(string) error,
) schema.Annotation[settings] {
	spec := schema.Spec{Help: help, Check: checkLength(check)}
	return schema.ListAnnotation(at, schema.AnnotationRow{Key: key, Changes: changes, Spec: spec})
}

// idRow is the row of an annotation that names objects of the cloud by IDs of a form.
func idRow(key, help string, changes schema.Mutability, at func(*settings) *[]string, form *schema.IDForm) schema.Annotation[settings] {
	return schema.ListAnnotation(at, schema.AnnotationRow{
		Key: key, Changes: changes, Spec: schema.Spec{Help: help, ID: form, Check: checkLength(nil)},
	})
}

func boolRow(key, help string, at func(*settings) *bool) schema.Annotation[settings] {
	return schema.BoolAnnotation(at, schema.AnnotationRow{
		Key: key, Changes: schema.InPlace, Spec: schema.Spec{Default: textFalse, Help: help},
	})
}

func numberRow(key, otherwise, help string, lowest, highest float64, at func(*settings) *int) schema.Annotation[settings] {
	return schema.IntAnnotation(at, schema.AnnotationRow{
		Key: key, Changes: schema.InPlace, Spec: schema.Spec{DefaultHelp: otherwise, Min: &lowest, Max: &highest, Help: help},
	})
}

// Annotations is the table of the provider's annotations. Other controllers have annotations of the same names; what they
// serve is not judged here.
var Annotations = withConditions(schema.Annotations[settings]{
	schema.EnumAnnotation(func(s *settings) *string { return &s.Type }, schema.AnnotationRow{
		Key: annotationType, Changes: schema.RefusedLater, Spec: schema.Spec{
			Choices: []string{typeNLB, typeNLBIP, typeExternal}, Lenient: true, DefaultHelp: "a classic load balancer",
			Help: "Kind of load balancer: nlb is a network load balancer; nlb-ip and external leave the Service to another controller.",
		},
	}),
	textRow(annotationInternal, "Give the load balancer only private addresses: any text except false does.", schema.AtCreation, func(s *settings) *string { return &s.Internal }, nil),
	schema.EnumAnnotation(func(s *settings) *string {
		return &s.ProxyProtocol
	}, schema.AnnotationRow{Key: annotationProxyProtocol, Changes: schema.InPlace, Spec: schema.Spec{
		Choices: []string{"*"}, DefaultHelp: "off", Help: "With * a classic load balancer tells nodes the client's address by the PROXY protocol. On a network load balancer, use " + annotationTargetAttributes + ".",
	}}),
	boolRow(annotationAccessLog, "Write access logs to S3.", func(s *settings) *bool { return &s.AccessLog }),
	schema.IntAnnotation(func(s *settings) *int {
		return &s.AccessLogInterval
	}, schema.AnnotationRow{Key: annotationAccessLogInterval, Changes: schema.InPlace, Spec: schema.Spec{
		DefaultHelp: "60", Check: checkInterval, Help: "Minutes between two access logs of a classic load balancer: 5 or 60.",
	}}),
	textRow(annotationAccessLogBucket, "Bucket of the access logs.", schema.InPlace, func(s *settings) *string { return &s.AccessLogBucket }, nil),
	textRow(
		annotationAccessLogPrefix, "Prefix of the access logs in the bucket.", schema.InPlace, func(s *settings) *string { return &s.AccessLogPrefix },
		awslimits.AttributeValue.WithName("the prefix").CheckText,
	),
	boolRow(annotationDraining, "Let open connections of a classic load balancer end when a node leaves.", func(s *settings) *bool { return &s.Draining }),
	numberRow(annotationDrainingTimeout, "300", "Maximum seconds that they get.", 1, 3600, func(s *settings) *int { return &s.DrainingTimeout }),
	numberRow(annotationIdleTimeout, "60", "Seconds after which a classic load balancer closes a silent connection.", 1, awslimits.ClassicIdle, func(s *settings) *int { return &s.IdleTimeout }),
	boolRow(annotationCrossZone, "Spread traffic over the nodes of all zones.", func(s *settings) *bool { return &s.CrossZone }),
	idRow(annotationExtraGroups, "Security groups of a classic load balancer, in addition to its own.", schema.InPlace, func(s *settings) *[]string { return &s.ExtraGroups }, schema.PrefixedHex("sg-")),
	idRow(annotationGroups, "Security groups instead of its own; no rules are written into them. A network load balancer needs the option NLBSecurityGroupMode.", schema.InPlace, func(s *settings) *[]string { return &s.Groups }, schema.PrefixedHex("sg-")),
	schema.StringAnnotation(func(s *settings) *string { return &s.Certificate }, schema.AnnotationRow{
		Key: annotationCertificate, Changes: schema.InPlace, Spec: schema.Spec{
			Help: "Certificate of the ports that end TLS: an ARN of ACM or IAM.", Check: checkLength(nil),
			ID: schema.ARN("a certificate", "arn:aws:acm:us-east-1:123456789012:certificate/4de7ac8b-495b-4884-9a69-1050c6793cd6", "acm", "iam", "acm-pca"),
		},
	}),
	textRow(annotationTLSPorts, "Ports that end TLS, by number or name, separated by commas without blanks; * or empty means all.", schema.InPlace, func(s *settings) *string { return &s.TLSPorts }, nil),
	textRow(annotationTLSPolicy, "Predefined policy of TLS, such as ELBSecurityPolicy-TLS13-1-2-2021-06.", schema.InPlace, func(s *settings) *string { return &s.TLSPolicy }, nil),
	textRow(annotationBackendProtocol, "Protocol to the nodes. Classic: http, https, ssl, tcp. Network: ssl encrypts again on ports that end TLS.", schema.InPlace, func(s *settings) *string { return &s.BackendProtocol }, nil),
	textRow(annotationTags, "Tags of everything that is made: key=value, separated by commas. A classic load balancer also gets further ones later; none is ever removed.", schema.AtCreation, func(s *settings) *string { return &s.Tags }, nil),
	schema.EnumAnnotation(func(s *settings) *string {
		return &s.CheckProtocol
	}, schema.AnnotationRow{Key: annotationCheckProtocol, Changes: schema.InPlace, Spec: schema.Spec{
		Choices: []string{textTCP, textHTTP, textHTTPS, textSSL}, AnyCase: true, DefaultHelp: "tcp; http with externalTrafficPolicy Local",
		Help: "Protocol of the health check; ssl is for classic load balancers.",
	}}),
	textRow(annotationCheckPort, "Port of the health check, or traffic-port.", schema.InPlace, func(s *settings) *string { return &s.CheckPort }, checkPort),
	textRow(annotationCheckPath, "Path of the health check for http and https.", schema.InPlace, func(s *settings) *string { return &s.CheckPath }, checkPath),
	numberRow(annotationHealthyThreshold, "2, or 3 for nlb with externalTrafficPolicy Cluster", "Checks that must pass before a node serves.", 2, 10,
		func(s *settings) *int { return &s.Healthy }),
	numberRow(
		annotationUnhealthyThreshold, "6, or 3 for nlb, 2 with externalTrafficPolicy Local", "Checks that must fail before a node is left out.", 2, 10,
		func(s *settings) *int { return &s.Unhealthy },
	),
	numberRow(annotationCheckTimeout, "5, for nlb AWS's own", "Seconds after which a check has failed.", 2, 120, func(s *settings) *int { return &s.CheckTimeout }),
	numberRow(annotationCheckInterval, "10, or 30 for nlb with externalTrafficPolicy Cluster", "Seconds between two checks.", 5, 300, func(s *settings) *int { return &s.CheckInterval }),
	textRow(
		annotationTargetAttributes, "Attributes of the target groups of a network load balancer: "+attributePreserveClient+" and "+attributeProxyV2+", each =true or =false, separated by commas.",
		schema.InPlace, func(s *settings) *string { return &s.TargetAttributes }, checkTargetAttributes,
	),
	idRow(annotationEIPs, "Elastic addresses of a network load balancer, one for each subnet.", schema.AtCreation, func(s *settings) *[]string { return &s.EIPs }, schema.PrefixedHex("eipalloc-")),
	listRow(annotationPrivateAddresses, "Private addresses of an internal network load balancer, one for each subnet.", schema.AtCreation, func(s *settings) *[]string { return &s.PrivateAddresses }, checkAddressList),
	textRow(annotationNodeLabels, "Labels of the nodes that are targets: key=value or key, separated by commas.", schema.InPlace, func(s *settings) *string { return &s.NodeLabels }, nil),
	schema.ListAnnotation(func(s *settings) *[]string { return &s.Subnets }, schema.AnnotationRow{
		Key: annotationSubnets, Changes: schema.InPlace, RefuseEmpty: true, Spec: schema.Spec{
			DefaultHelp: "found by tags", Check: checkLength(nil), ID: schema.PrefixedHex("subnet-").OrName("subnet-"), Help: "Subnets by ID or Name, in the order of addresses. A network load balancer can get more of them later, and lose none.",
		},
	}),
	listRow(annotationSourceRanges, "Networks that may connect, where spec.loadBalancerSourceRanges is empty.", schema.InPlace, func(s *settings) *[]string { return &s.SourceRanges }, checkRanges),
}.Needing(schema.Given(annotationCertificate), annotationTLSPorts, annotationTLSPolicy).
	Needing(&schema.Where{Key: annotationAccessLog, OneOf: []string{textTrue}},
		annotationAccessLogInterval, annotationAccessLogBucket, annotationAccessLogPrefix).
	Needing(&schema.Where{Key: annotationDraining, OneOf: []string{textTrue}}, annotationDrainingTimeout))

// maxText is the longest value of an annotation that is taken apart; AWS takes no list that is longer.
const maxText = 4096

// checkLength refuses implausibly long values before they are parsed.
func checkLength(check func(string) error) func(string) error {
	return func(v string) error {
		if len(v) > maxText {
			return fmt.Errorf("is %d characters long; use %d at most", len(v), maxText)
		}
		if check == nil {
			return nil
		}
		return check(v)
	}
}

// withConditions limits each row to the kind of load balancer that it applies to.
func withConditions(table schema.Annotations[settings]) schema.Annotations[settings] {
	portables := portableRows()
	for i := range table {
		table[i].Serves = portables[table[i].Key]
		switch row := &table[i].AnnotationRow; {
		case row.Key == annotationType:
		case slices.Contains(networkOnly(), row.Key):
			row.Where = networkKind()
		case slices.Contains(classicOnly(), row.Key):
			row.Where = classicKind()
		default:
			row.Where = &schema.Where{Key: annotationType, NoneOf: []string{typeNLBIP, typeExternal}}
		}
	}
	return table
}

// classicOnly and networkOnly are annotations that one kind of load balancer knows; on the other they have no effect.
func classicOnly() []string {
	return []string{
		annotationProxyProtocol, annotationAccessLogInterval, annotationDraining, annotationDrainingTimeout, annotationIdleTimeout,
		annotationExtraGroups,
	}
}

func networkOnly() []string {
	return []string{annotationTargetAttributes, annotationEIPs, annotationPrivateAddresses}
}

func checkInterval(v string) error {
	if n, err := strconv.Atoi(v); err == nil && n != 5 && n != 60 {
		return errors.New("is out of range; use 5 or 60")
	}
	return nil
}

func checkPort(v string) error {
	if n, err := strconv.Atoi(v); v != trafficPort && (err != nil || n < 1 || n > 65535) {
		return errors.New("is not a port; use traffic-port or 1 to 65535")
	}
	return nil
}

func checkTargetAttributes(v string) error {
	_, err := parseTargetAttributes(v)
	return err
}

func parseTargetAttributes(v string) (map[string]string, error) {
	parsed := map[string]string{}
	for one := range strings.SplitSeq(v, ",") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		key, value, _ := strings.Cut(one, "=")
		key = strings.TrimSpace(key)
		switch {
		case key != attributePreserveClient && key != attributeProxyV2:
			return nil, fmt.Errorf("holds %q; use %s and %s", key, attributePreserveClient, attributeProxyV2)
		case value != textTrue && value != textFalse:
			return nil, fmt.Errorf("gives %s the value %q; use true or false", key, value)
		}
		parsed[key] = value
	}
	return parsed, nil
}

func checkAddressList(v string) error {
	for one := range strings.SplitSeq(v, ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(one)); strings.TrimSpace(one) != "" && (err != nil || !a.Is4()) {
			return fmt.Errorf("holds %q, which is not an IPv4 address", one)
		}
	}
	return nil
}

func checkRanges(v string) error {
	for one := range strings.SplitSeq(v, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(one)); strings.TrimSpace(one) != "" && err != nil {
			return fmt.Errorf(`holds %q, which is not a network; use a form such as "192.0.2.0/24"`, one)
		}
	}
	return nil
}

// controllerDomains are those of controllers that find what they work on by its tags.
var controllerDomains = []string{"kubernetes.io", "k8s.io", "k8s.aws", "karpenter.sh", "karpenter.k8s.aws"}

// reservedTag reports whether a tag says which cluster or controller has a resource, which no Service may say.
func reservedTag(key string) bool {
	key = strings.ToLower(key)
	if domain, _, found := strings.Cut(key, "/"); found &&
		slices.ContainsFunc(controllerDomains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }) {
		return true
	}
	return key == strings.ToLower(legacyClusterTag) ||
		slices.ContainsFunc([]string{"anyccm", "aws:", "eks:"}, func(p string) bool { return strings.HasPrefix(key, p) })
}

// parsePairs reads key=value pairs as AWS's own controller does. It drops entries without a key and cuts a value at a second "="; cut names
// the keys of such values.
func parsePairs(v string) (pairs map[string]string, cut []string) {
	pairs = map[string]string{}
	for one := range strings.SplitSeq(v, ",") {
		parts := strings.Split(one, "=")
		key := strings.TrimSpace(parts[0])
		if key == "" {
			continue
		}
		value := ""
		if len(parts) > 1 {
			value = strings.TrimSpace(parts[1])
		}
		if len(parts) > 2 {
			cut = append(cut, key)
		}
		pairs[key] = value
	}
	return pairs, cut
}

// kindOf reads which load balancer a Service wants; elsewhere is set where another controller serves it.
func kindOf(service *v1.Service) (network, elsewhere bool) {
	switch service.Annotations[annotationType] {
	case typeNLB:
		return true, false
	case typeNLBIP, typeExternal:
		return false, true
	}
	return false, false
}

// ownTags is how many tags everything gets besides those that a Service asks for: the cluster's, and the Service's.
const ownTags = 2

// tagPunctuation are the characters in tags of load balancers besides letters, digits and blanks.
const tagPunctuation = "_.:/=+-@"

// tagProblems are the limits that the tags of a Service exceed, and the characters that load balancers do not take.
func tagProblems(tags map[string]string) (problems []error) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		name := awslimits.TagKey.WithName(fmt.Sprintf("the key of tag %.20s…", key))
		problems = append(problems, name.CheckText(key), awslimits.TagValue.WithName("the value of tag "+key).CheckText(tags[key]))
		for _, r := range key + tags[key] {
			if !unicode.In(r, unicode.L, unicode.Z, unicode.N) && !strings.ContainsRune(tagPunctuation, r) {
				problems = append(problems, fmt.Errorf("tag %s has the character %q; load balancers take letters, digits, blanks and %s", name.Cut(key), r, tagPunctuation))
				break
			}
		}
	}
	problems = append(problems, awslimits.Tags.CheckNumber(len(tags)+ownTags))
	return slices.DeleteFunc(problems, func(err error) bool { return err == nil })
}

// faults collects warnings about settings of a Service without effect, and the problems that refuse it.
type faults struct{ warnings, problems []error }

func (f *faults) warn(annotation, value, reason string) {
	f.warnings = append(f.warnings, &schema.Problem{Place: "annotation " + annotation, Value: value, Reason: reason, Warning: true})
}

func (f *faults) refuse(annotation, value, reason string) {
	f.problems = append(f.problems, &schema.Problem{Place: "annotation " + annotation, Value: value, Reason: reason})
}

// parseSettings reads the annotations and the spec of a Service.
func parseSettings(service *v1.Service, c Config) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	s.network, _ = kindOf(service)
	s.internal = s.Internal != "" && s.Internal != textFalse
	f := &faults{schema.Problems(warnings), schema.Problems(err)}
	s.parseTags(f)
	s.targetLabels, _ = parsePairs(s.NodeLabels)
	s.targetAttributes, _ = parseTargetAttributes(s.TargetAttributes) // the table has checked it
	for _, port := range unmatchedTLSPorts(service, s) {
		f.warn(annotationTLSPorts, s.TLSPorts, fmt.Sprintf("holds %q, which is not a port of the Service", port))
	}
	s.ranges, err = sourceRanges(service, s.SourceRanges)
	f.problems = append(f.problems, schema.Problems(err)...)
	if tooMany := tooManyRules(service, s, c); tooMany != nil {
		f.problems = append(f.problems, tooMany)
	}
	s.warnOtherKind(service, f)
	s.refuseContradictions(service, c, f)
	s.judgeFields(service, f)
	if s.network && len(s.Groups) > 0 && c.NLBGroupMode != groupModeManaged {
		f.warn(annotationGroups, "", "has no effect on a network load balancer without the option NLBSecurityGroupMode = Managed")
	}
	if err := services.WarnOfPorts(service, awslimits.Listeners); s.network && err != nil {
		f.warnings = append(f.warnings, err)
	}
	sortProblems(f.problems)
	sortProblems(f.warnings)
	return s, errors.Join(f.warnings...), errors.Join(f.problems...)
}

func sortProblems(problems []error) {
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
}

// parseTags reads the tags, without those that no Service may set.
func (s *settings) parseTags(f *faults) {
	var cut []string
	s.tags, cut = parsePairs(s.Tags)
	for _, key := range slices.Sorted(maps.Keys(s.tags)) {
		if reservedTag(key) {
			delete(s.tags, key)
			f.warn(annotationTags, s.Tags, "holds the tag "+key+", which is left out: it says whose a resource is, and only controllers and AWS set it")
		}
	}
	for _, key := range cut {
		f.warn(annotationTags, s.Tags, "gives "+key+" a value with =, of which what stands before it is kept")
	}
	for _, err := range tagProblems(s.tags) {
		f.refuse(annotationTags, "", err.Error())
	}
}

// warnOtherKind warns of annotations that have no effect on this kind of load balancer.
func (s *settings) warnOtherKind(service *v1.Service, f *faults) {
	foreign, kind := classicOnly(), "a network load balancer"
	if !s.network {
		foreign, kind = networkOnly(), "a classic load balancer"
	}
	for _, key := range foreign {
		if _, present := service.Annotations[key]; present && key != annotationExtraGroups && key != annotationTargetAttributes {
			f.warn(key, "", "has no effect on "+kind)
		}
	}
	if s.network && !slices.Contains([]string{"", textTCP, textSSL}, s.BackendProtocol) {
		f.warn(annotationBackendProtocol, s.BackendProtocol, "has no effect on "+kind+"; ports have the protocols of the Service")
	}
}

// annotationOf returns the annotation that a problem is about.
func annotationOf(problem error) string {
	if p, ok := errors.AsType[*schema.Problem](problem); ok {
		return strings.TrimPrefix(p.Place, "annotation ")
	}
	return ""
}

// refuseContradictions refuses annotations that this kind of load balancer cannot have, and those that contradict each other.
func (s *settings) refuseContradictions(service *v1.Service, c Config, f *faults) {
	report := func(broken bool, key, value, reason string) {
		if broken {
			f.refuse(key, value, reason)
		}
	}
	_, extra := service.Annotations[annotationExtraGroups]
	_, attributes := service.Annotations[annotationTargetAttributes]
	report(s.AccessLog && s.AccessLogBucket == "", annotationAccessLogBucket, "", "is required with "+annotationAccessLog)
	if s.network {
		report(extra, annotationExtraGroups, "", "cannot be used with a network load balancer; remove it")
		report(s.CheckProtocol == textSSL, annotationCheckProtocol, s.CheckProtocol, "is for classic load balancers; use tcp, http or https")
		report(len(s.EIPs) > 0 && s.internal, annotationEIPs, "", "cannot be used with an internal load balancer; remove one of the two")
		report(len(s.PrivateAddresses) > 0 && !s.internal, annotationPrivateAddresses, "", "is for internal load balancers; set "+annotationInternal)
		check := networkCheck(service, *s, c)
		report(
			check.timeout >= check.interval, annotationCheckTimeout, strconv.Itoa(int(check.timeout)),
			fmt.Sprintf("is not shorter than %s, which is %d", annotationCheckInterval, check.interval),
		)
		udp := slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool { return p.Protocol == v1.ProtocolUDP })
		report(
			udp && s.targetAttributes[attributePreserveClient] == textFalse, annotationTargetAttributes, s.TargetAttributes,
			attributePreserveClient+"=false cannot be used with a UDP port",
		)
		report(slices.ContainsFunc(service.Spec.Ports, s.sharesTLS(service)), annotationTLSPorts, s.TLSPorts, "ends TLS at a port that UDP has, too; name other ports, or use two Services")
		return
	}
	report(attributes, annotationTargetAttributes, "", "cannot be used with a classic load balancer; remove it")
	report(s.CheckTimeout > maxClassicTimeout, annotationCheckTimeout, strconv.Itoa(s.CheckTimeout), "is out of range for a classic load balancer; use 2 to 60")
	check, interval := cmp.Or(s.CheckTimeout, classicTimeout), cmp.Or(s.CheckInterval, classicInterval)
	report(check >= interval, annotationCheckTimeout, strconv.Itoa(check), fmt.Sprintf("is not shorter than %s, which is %d", annotationCheckInterval, interval))
	known := slices.Contains([]string{"", textTCP, textSSL, textHTTP, textHTTPS}, s.BackendProtocol)
	report(!known && slices.ContainsFunc(service.Spec.Ports, s.endsTLS), annotationBackendProtocol, s.BackendProtocol, `is not one of "http", "https", "ssl", "tcp"`)
}

// sourceRanges returns the networks that may come in: those of the spec, else those of the annotation.
func sourceRanges(service *v1.Service, annotated []string) ([]netip.Prefix, error) {
	if given := service.Spec.LoadBalancerSourceRanges; len(given) > 0 {
		set, err := kitsources.Parse(kitsources.Field, given)
		return set.Networks(), err
	}
	set, _ := kitsources.Parse("", annotated) // the table reports its faults
	return set.Networks(), nil
}

// endsTLS reports whether a port ends TLS. Names are compared as AWS's own controller does: classic load balancers know them
// in lower case alone.
func (s *settings) endsTLS(p v1.ServicePort) bool {
	if s.Certificate == "" || p.Protocol == v1.ProtocolUDP {
		return false
	}
	if s.TLSPorts == "" || s.TLSPorts == "*" {
		return true
	}
	name := p.Name
	if !s.network {
		name = strings.ToLower(name)
	}
	for one := range strings.SplitSeq(s.TLSPorts, ",") {
		if one == strconv.Itoa(int(p.Port)) || (name != "" && one == name) {
			return true
		}
	}
	return false
}

// sharesTLS reports whether a port ends TLS that is also a UDP port.
func (s *settings) sharesTLS(service *v1.Service) func(v1.ServicePort) bool {
	return func(p v1.ServicePort) bool {
		return s.endsTLS(p) && slices.ContainsFunc(service.Spec.Ports, func(o v1.ServicePort) bool {
			return o.Port == p.Port && o.Protocol == v1.ProtocolUDP
		})
	}
}

func unmatchedTLSPorts(service *v1.Service, s settings) []string {
	if s.Certificate == "" || s.TLSPorts == "" || s.TLSPorts == "*" {
		return nil
	}
	var unmatched []string
	for one := range strings.SplitSeq(s.TLSPorts, ",") {
		alone := s
		alone.TLSPorts = one
		if one == "" || !slices.ContainsFunc(service.Spec.Ports, alone.endsTLS) {
			unmatched = append(unmatched, one)
		}
	}
	return unmatched
}
