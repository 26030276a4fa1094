package ocisim

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"
)

func (*Sim) currentTime() time.Time { return time.Now() }

// GroupID is the OCID of one of the network security groups, which have numbers from 1.
func GroupID(n int) string { return fmt.Sprintf("ocid1.networksecuritygroup.oc1.phx.aaaagroup%d", n) }

// shape lists the fields that a document may have, from Oracle's description.
type shape struct{ fields map[string]field }

// field is one field of a document.
type field struct {
	kind        string // string, int, bool, ip, cidr, list, map, object, any
	must        bool
	least, most float64
	choices     []string
	form        string
	// of is the shape of an object, of the elements of a list, or of the values of a map; each is the field of a list's scalar elements.
	of   *shape
	each *field
	// atMost and atLeast bound the length of a list.
	atLeast, atMost int
}

// judge says what is wrong with a document; "" is nothing.
func (s shape) judge(path string, d document) string {
	for name, f := range s.fields {
		if f.must && d[name] == nil {
			return path + "." + name + " must not be null"
		}
	}
	for name, v := range d {
		f, known := s.fields[name]
		switch {
		case !known:
			return path + " has no field " + name
		case v == nil:
			continue
		}
		if why := f.judge(path+"."+name, v); why != "" {
			return why
		}
	}
	return ""
}

func (f field) judge(path string, v any) string {
	ok := true
	switch f.kind {
	case "string", "ip", "cidr":
		return f.judgeText(path, v)
	case "int":
		n, is := v.(float64)
		ok = is && n == float64(int(n)) && n >= f.least && n <= f.most
	case "bool":
		_, ok = v.(bool)
	case "list":
		return f.judgeList(path, v)
	case "object":
		d, is := v.(document)
		if is {
			return f.of.judge(path, d)
		}
		ok = false
	case kindTags:
		return judgeTags(path, v)
	case "map":
		return f.judgeMap(path, v)
	}
	if !ok {
		return fmt.Sprintf("%s has an illegal value %v", path, v)
	}
	return ""
}

func (f field) judgeMap(path string, v any) string {
	m, is := v.(document)
	if !is {
		return fmt.Sprintf("%s has an illegal value %v", path, v)
	}
	for name, one := range m {
		d, isObject := one.(document)
		switch {
		case f.of == nil:
		case !isObject:
			return path + "." + name + " is no object"
		default:
			if why := f.of.judge(path+"."+name, d); why != "" {
				return why
			}
		}
	}
	return ""
}

// kindTags are tags that anybody may invent: an object of texts.
const kindTags = "tags"

func judgeTags(path string, v any) string {
	tags, is := v.(document)
	for name, value := range tags {
		if _, is := value.(string); !is {
			return path + "." + name + " is no text"
		}
	}
	if !is {
		return path + " is no object"
	}
	return ""
}

func (f field) judgeText(path string, v any) string {
	text, ok := v.(string)
	if ok && f.kind == "ip" {
		_, err := netip.ParseAddr(text)
		ok = err == nil
	}
	if ok && f.kind == "cidr" {
		ok = isCIDR(text)
	}
	if ok && f.choices != nil {
		ok = slices.Contains(f.choices, text)
	}
	if ok && f.form != "" {
		ok = regexp.MustCompile(f.form).MatchString(text)
	}
	if !ok {
		return fmt.Sprintf("%s has an illegal value %v", path, v)
	}
	return ""
}

func (f field) judgeList(path string, v any) string {
	l, is := v.([]any)
	if !is || len(l) < f.atLeast || (f.atMost > 0 && len(l) > f.atMost) {
		return path + " is no list, or too long or too short"
	}
	for n, one := range l {
		at := fmt.Sprintf("%s[%d]", path, n)
		why := ""
		if f.each != nil {
			why = f.each.judge(at, one)
		} else if f.of != nil {
			d, _ := one.(document)
			why = f.of.judge(at, d)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func number(must bool, least, most float64) field {
	return field{kind: "int", must: must, least: least, most: most}
}

func text(must bool, form string) field { return field{kind: "string", must: must, form: form} }

func choice(must bool, of ...string) field { return field{kind: "string", must: must, choices: of} }

func flag() field { return field{kind: "bool"} }

func texts() field { return field{kind: "list", each: &field{kind: "string"}} }

const maxPort = 65535

func backendSetShape() shape {
	backend := shape{map[string]field{
		"ipAddress": {kind: "ip", must: true}, "port": number(true, 1, maxPort), "weight": number(false, 1, 100), "backup": flag(), "drain": flag(),
		"offline": flag(), "maxConnections": number(false, 256, maxPort),
	}}
	checker := shape{map[string]field{
		"protocol": choice(true, "HTTP", "TCP"), "urlPath": text(false, `^/`), "port": number(false, 0, maxPort), "returnCode": number(false, 100, 599),
		"retries": number(false, 1, 100), "timeoutInMillis": number(false, 1, 600000), "intervalInMillis": number(false, 1000, 1800000),
		"responseBodyRegex": text(false, ""), "isForcePlainText": flag(),
	}}
	cookie := shape{map[string]field{"cookieName": text(true, `^.+$`), "disableFallback": flag()}}
	return shape{map[string]field{
		"policy": choice(true, "ROUND_ROBIN", "LEAST_CONNECTIONS", "IP_HASH"), "backends": {kind: "list", of: &backend},
		"healthChecker": {kind: "object", must: true, of: &checker}, "backendMaxConnections": number(false, 256, maxPort),
		"sessionPersistenceConfiguration": {kind: "object", of: &cookie}, "lbCookieSessionPersistenceConfiguration": {kind: "any"},
		"sslConfiguration": {kind: "object", of: new(tlsShape())},
	}}
}

func listenerShape() shape {
	connection := shape{map[string]field{
		"idleTimeout": number(true, 1, 7200), "backendTcpProxyProtocolVersion": number(false, 1, 2), "backendTcpProxyProtocolOptions": texts(),
	}}
	return shape{map[string]field{
		"defaultBackendSetName": text(true, `^.+$`), "port": number(true, 1, maxPort), "protocol": choice(true, "HTTP", "HTTP2", "TCP", "GRPC"),
		"hostnameNames": texts(), "pathRouteSetName": text(false, ""), "routingPolicyName": text(false, ""), "ruleSetNames": texts(),
		"connectionConfiguration": {kind: "object", of: &connection}, "sslConfiguration": {kind: "object", of: new(tlsShape())},
	}}
}

func shapeShape() shape {
	details := shape{map[string]field{
		"minimumBandwidthInMbps": number(true, 10, 8192), "maximumBandwidthInMbps": number(true, 10, 8192),
	}}
	return shape{map[string]field{
		"shapeName":    choice(true, "10Mbps", "100Mbps", "400Mbps", "8000Mbps", "flexible"),
		"shapeDetails": {kind: "object", of: &details},
	}}
}

func groupsShape() shape {
	return shape{map[string]field{"networkSecurityGroupIds": {
		kind: "list", must: true, each: &field{kind: "string", form: `^ocid1\.networksecuritygroup\.`},
	}}}
}

// isCIDR reports whether a text is a network, without bits of a host.
func isCIDR(text string) bool {
	network, err := netip.ParsePrefix(text)
	return err == nil && network == network.Masked()
}

// ruleShape is a rule of a security list, about clients or about what is reached.
func ruleShape(sides ...string) shape {
	ports := shape{map[string]field{"min": number(true, 1, maxPort), "max": number(true, 1, maxPort)}}
	options := shape{map[string]field{
		"destinationPortRange": {kind: "object", of: &ports}, "sourcePortRange": {kind: "object", of: &ports},
	}}
	icmp := shape{map[string]field{"type": number(true, 0, 255), "code": number(false, 0, 255)}}
	s := shape{map[string]field{
		"protocol": text(true, `^(?:all|1|6|17|58)$`), "isStateless": flag(), "description": text(false, ""),
		"tcpOptions": {kind: "object", of: &options}, "udpOptions": {kind: "object", of: &options}, "icmpOptions": {kind: "object", of: &icmp},
	}}
	for _, side := range sides {
		s.fields[side] = field{kind: "cidr", must: true}
		s.fields[side+"Type"] = choice(false, "CIDR_BLOCK", "SERVICE_CIDR_BLOCK")
	}
	return s
}

func securityListShape() shape {
	in, out := ruleShape("source"), ruleShape("destination")
	return shape{map[string]field{
		ingressField: {kind: "list", of: &in}, egressField: {kind: "list", of: &out},
		"displayName": text(false, ""), "freeformTags": {kind: kindTags}, "definedTags": {kind: "map"},
	}}
}

func groupShape(creation bool) shape {
	s := shape{map[string]field{
		"displayName": text(false, ""), "freeformTags": {kind: kindTags}, "definedTags": {kind: "map"},
	}}
	if creation {
		s.fields["compartmentId"], s.fields["vcnId"] = text(true, `^ocid1\.compartment\.`), text(true, `^ocid1\.vcn\.`)
	}
	return s
}

func addRulesShape() shape {
	rule := ruleShape()
	rule.fields["direction"] = choice(true, "INGRESS", "EGRESS")
	for _, side := range []string{"source", "destination"} {
		rule.fields[side] = field{kind: "string"}
		rule.fields[side+"Type"] = choice(false, "CIDR_BLOCK", "SERVICE_CIDR_BLOCK", "NETWORK_SECURITY_GROUP")
	}
	return shape{map[string]field{"securityRules": {kind: "list", must: true, of: &rule, atLeast: 1}}}
}

func creationShape() shape {
	sets, listeners, certificates, rules := backendSetShape(), listenerShape(), certificateShape(), ruleSetShape()
	reserved := shape{map[string]field{"id": text(true, `^ocid1\.publicip\.`)}}
	all := shape{map[string]field{
		"compartmentId": text(true, `^ocid1\.compartment\.`), "displayName": {kind: "string", must: true, form: `^.+$`}, "isPrivate": flag(),
		"subnetIds":     {kind: "list", must: true, atLeast: 1, each: &field{kind: "string", form: `^ocid1\.subnet\.`}},
		"ipMode":        choice(false, "IPV4", "IPV6"),
		"reservedIps":   {kind: "list", of: &reserved, atMost: 1},
		"backendSets":   {kind: "map", of: &sets},
		"listeners":     {kind: "map", of: &listeners},
		"certificates":  {kind: "map", of: &certificates},
		"ruleSets":      {kind: "map", of: &rules},
		"hostnames":     {kind: "map"},
		"freeformTags":  {kind: kindTags},
		"definedTags":   {kind: "map"},
		"pathRouteSets": {kind: "map"},
	}}
	for _, more := range []shape{shapeShape(), groupsShape()} {
		for name, f := range more.fields {
			if name == "networkSecurityGroupIds" {
				f.must = false
			}
			all.fields[name] = f
		}
	}
	return all
}
