package vsphere

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// file holds the content of vsphere.conf, from either of its two formats.
type file struct {
	// keys are the values of single keys by their YAML name.
	keys map[string]string
	// vcenters and classes are the named sections, with the values of their keys.
	vcenters, classes map[string]map[string]string
	// ini is set for the INI format, in which the name of a vCenter is its address.
	ini     bool
	unknown []error
}

const (
	sectionVCenter = "vcenter"
	sectionClass   = "loadBalancerClass"
)

// vcenterKeys are the keys of a section vcenter.<name>.
func vcenterKeys() []string {
	return []string{
		"server", "user", "password", "port", "insecureFlag", "datacenters", "soapRoundtripCount", "caFile", "thumbprint", "secretName",
		"secretNamespace", "ipFamily",
	}
}

// classKeys are the keys of a section loadBalancerClass.<name>.
func classKeys() []string {
	return []string{"ipPoolName", "ipPoolId", "tcpAppProfileName", "tcpAppProfilePath", "udpAppProfileName", "udpAppProfilePath"}
}

// readFile parses either format. A file that begins with a section in brackets is INI; everything else is YAML, so that its faults are
// reported as such.
func readFile(data []byte) (file, error) {
	f := file{keys: map[string]string{}, vcenters: map[string]map[string]string{}, classes: map[string]map[string]string{}}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if line[0] == '[' || line[0] == ';' {
			f.ini = true
			err := f.readINI(data)
			return f, err
		}
		err := f.readYAML(data)
		return f, err
	}
	return f, nil
}

func (f *file) readINI(data []byte) error {
	entries, err := schema.ReadINI(data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		value := e.Value
		if e.Blank && isFlag(camel(e.Key)) {
			value = "true"
		}
		section, isOurs := sectionOf(e.Section)
		if !isOurs {
			section = e.Section
		}
		f.set(section, e.Subsection, camel(e.Key), value, "key "+e.FileKey()+" of the cloud config")
	}
	return nil
}

// sectionOf translates the name of an INI section.
func sectionOf(ini string) (string, bool) {
	section, ok := map[string]string{
		"global": "global", "virtualcenter": sectionVCenter, "labels": "labels", "nodes": "nodes", "loadbalancer": "loadBalancer",
		"loadbalancerclass": sectionClass, "nsxt": "nsxt", "route": "route",
	}[strings.ToLower(ini)]
	return section, ok
}

// camel translates the name of an INI key: "ca-file" is caFile.
func camel(key string) string {
	parts := strings.Split(strings.ToLower(key), "-")
	for i, p := range parts[1:] {
		if p != "" {
			parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// set stores one key, or records that it is unknown.
func (f *file) set(section, name, key, value, place string) {
	if isFlag(key) {
		value = switchText(value)
	}
	switch {
	case section == sectionVCenter && name != "":
		f.setIn(f.vcenters, vcenterKeys(), name, key, value, place)
	case section == sectionClass && name != "":
		f.setIn(f.classes, classKeys(), name, key, value, place)
	case name == "" && slices.ContainsFunc(Options, func(o option) bool { return o.FileKey == section+"."+key }):
		f.keys[section+"."+key] = value
	default:
		f.note(place, section+"."+key)
	}
}

// isFlag reports boolean keys, for which both formats have further words. In other keys these are ordinary texts: there are datacenters
// called NO.
func isFlag(key string) bool {
	return slices.Contains([]string{"insecureFlag", "snatDisabled", "remoteAuth", "apiDisable"}, key)
}

func switchText(word string) string {
	switch strings.ToLower(word) {
	case "yes", "on", "y":
		return "true"
	case "no", "off", "n":
		return "false"
	}
	return word
}

func (f *file) setIn(sections map[string]map[string]string, known []string, name, key, value, place string) {
	if sections[name] == nil {
		sections[name] = map[string]string{}
	}
	if slices.Contains(known, key) {
		sections[name][key] = value
		return
	}
	reason := "is unknown and has no effect; there are " + strings.Join(known, ", ")
	if near := schema.Nearest(camel(key), known); near != "" {
		reason = fmt.Sprintf("is unknown and has no effect; did you mean %s?", near)
	}
	f.unknown = append(f.unknown, &schema.Problem{Place: place, Reason: reason, Warning: true, InFile: true})
}

func (f *file) note(place, key string) {
	var known []string
	for _, o := range Options {
		if o.FileKey != "" {
			known = append(known, o.FileKey)
		}
	}
	reason := "is unknown and has no effect"
	section, name, _ := strings.Cut(key, ".")
	if near := schema.Nearest(section+"."+camel(name), known); near != "" {
		reason += fmt.Sprintf("; did you mean %s?", near)
	}
	f.unknown = append(f.unknown, &schema.Problem{Place: place, Reason: reason, Warning: true, InFile: true})
}

func (f *file) warnings() error { return errors.Join(f.unknown...) }

// readYAML parses the sections. Of keys that occur twice the last one counts.
func (f *file) readYAML(data []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return schema.BlameKey("", "", "is not YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil
	}
	var problems []error
	pairs(doc.Content[0], func(section string, content *yaml.Node, ok bool) {
		if !ok {
			problems = append(problems, badYAML(content, "", "must be sections with keys"))
			return
		}
		named := section == sectionVCenter || section == sectionClass
		pairs(content, func(key string, value *yaml.Node, ok bool) {
			switch {
			case !ok:
				problems = append(problems, badYAML(value, section, "must have keys"))
			case named:
				if section == sectionVCenter {
					f.vcenters[key] = map[string]string{}
				} else {
					f.classes[key] = map[string]string{}
				}
				pairs(value, func(inner string, value *yaml.Node, ok bool) {
					problems = append(problems, f.setYAML(section, key, inner, value, ok))
				})
			default:
				problems = append(problems, f.setYAML(section, "", key, value, true))
			}
		})
	})
	return errors.Join(problems...)
}

// setYAML stores the value of one key.
func (f *file) setYAML(section, name, key string, value *yaml.Node, ok bool) error {
	path := strings.Join(slices.DeleteFunc([]string{section, name, key}, func(s string) bool { return s == "" }), ".")
	if !ok {
		return badYAML(value, path, "must have keys")
	}
	text, err := scalar(value, key == "datacenters")
	if err != nil {
		return badYAML(value, path, err.Error())
	}
	f.set(section, name, key, text, fmt.Sprintf("key %s of the cloud config, line %d", path, value.Line))
	return nil
}

func badYAML(node *yaml.Node, path, reason string) error {
	place := "cloud config"
	if path != "" {
		place = "key " + path + " of the cloud config"
	}
	return &schema.Problem{Place: fmt.Sprintf("%s, line %d", place, node.Line), Reason: reason, InFile: true}
}

// pairs calls f for each key of a mapping, and once with false if it is not a mapping. An empty value has no keys.
func pairs(node *yaml.Node, f func(key string, value *yaml.Node, ok bool)) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.MappingNode {
		f("", node, false)
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		f(node.Content[i].Value, node.Content[i+1], true)
	}
}

// scalar returns a value as text: a list with commas, a mapping as JSON. Commas in list items are escaped.
func scalar(node *yaml.Node, ofNames bool) (string, error) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return "", nil
		}
		return node.Value, nil
	case yaml.SequenceNode:
		items := []string{}
		for _, n := range node.Content {
			if n.Kind != yaml.ScalarNode {
				return "", errors.New("must be a list of texts")
			}
			item := n.Value
			if ofNames {
				item = strings.ReplaceAll(item, ",", escapedComma)
			}
			items = append(items, item)
		}
		return strings.Join(items, ","), nil
	}
	var m map[string]string
	if err := node.Decode(&m); err != nil {
		return "", errors.New("must be keys with texts")
	}
	encoded, err := json.Marshal(m)
	return string(encoded), err
}

// understand completes the configuration: named sections, inheritance, and combined keys.
func (c *Config) understand(f file, in registry.Inputs) error {
	var problems []error
	note := func(err error) { problems = append(problems, err) }
	c.Nodes.InternalCIDRs, _ = parseCIDRs(c.raw.InternalCIDRs)     // the table has refused invalid ones
	c.Nodes.ExternalCIDRs, _ = parseCIDRs(c.raw.ExternalCIDRs)     // as above
	c.Nodes.ExcludeInternal, _ = parseCIDRs(c.raw.ExcludeInternal) // as above
	c.Nodes.ExcludeExternal, _ = parseCIDRs(c.raw.ExcludeExternal) // as above
	c.NodeLabels, _ = parseNodeLabels(c.raw.NodeLabels)            // as above
	c.SkipNodeDeletion = isSet(in, envSkipDeletion)
	if c.Global.SecretsDirectory == "" {
		c.Global.SecretsDirectory = defaultSecretsDirectory
	}
	if info, err := os.Stat(c.Global.SecretsDirectory); err != nil || !info.IsDir() {
		c.Global.SecretsDirectory = ""
	}
	f.readEnvironment(in)
	if server := c.Global.Server; server != "" && f.vcenters[server] == nil {
		f.vcenters[server] = map[string]string{"server": server}
	}
	for _, key := range slices.Sorted(maps.Keys(f.vcenters)) {
		own := f.vcenters[key]
		if own["server"] == "" && !f.ini {
			note(problem("vcenter."+key+".server", "is required and is not set: the address of the vCenter"))
		}
		v, err := c.vcenter(key, own, in)
		note(err)
		c.VCenters = append(c.VCenters, v)
	}
	if len(c.VCenters) == 0 {
		note(blameMissing("vcenter", "there is no vCenter: set global.server, or a section vcenter.<name> with server"))
	}
	note(c.loadBalancerSections(f))
	note(c.NSXT.check(c.LoadBalancer.Enabled || c.Route.RouterPath != ""))
	note(c.nsxSections(in))
	return errors.Join(problems...)
}

const (
	// envVCenter is the prefix of variables that each define a vCenter: the suffix is its ID, the value its key. Its settings are the
	// variables with envOfVCenter and the ID.
	envVCenter   = "VSPHERE_VCENTER_"
	envOfVCenter = "VCENTER_"
	// idOfPort is not an ID: VSPHERE_VCENTER_PORT is an option.
	idOfPort = "PORT"
)

// envKeys maps the suffixes of a vCenter's variables to the keys of its section.
func envKeys() map[string]string {
	return map[string]string{
		"server": "SERVER", "user": "USERNAME", "password": "PASSWORD", "port": "PORT", "insecureFlag": "INSECURE", "datacenters": "DATACENTERS",
		"soapRoundtripCount": "ROUNDTRIP", "caFile": "CAFILE", "thumbprint": "THUMBPRINT", "secretName": "SECRET_NAME",
		"secretNamespace": "SECRET_NAMESPACE", "ipFamily": "IP_FAMILY",
	}
}

// readEnvironment adds the vCenters that the environment defines, which override those of the file.
func (f *file) readEnvironment(in registry.Inputs) {
	if in.EnvNames == nil || in.LookupEnv == nil {
		return
	}
	for _, name := range in.EnvNames() {
		id, ok := strings.CutPrefix(name, envVCenter)
		key, _ := in.LookupEnv(name)
		if !ok || id == idOfPort || key == "" {
			continue
		}
		own := map[string]string{"server": key}
		for setting, end := range envKeys() {
			if value, _ := in.LookupEnv(envOfVCenter + id + "_" + end); value != "" {
				own[setting] = value
			}
		}
		f.vcenters[key] = own
	}
}

const (
	defaultSecretsDirectory = "/etc/cloud/secrets" //nolint:gosec // a folder
	defaultSecretNamespace  = "kube-system"
)

// isSet reports whether a variable is set, to any value.
func isSet(in registry.Inputs, name string) bool {
	if in.LookupEnv == nil {
		return false
	}
	_, ok := in.LookupEnv(name)
	return ok
}

func problem(key, reason string) error { return schema.BlameKey(key, "", reason) }

// blameMissing returns the fault of a key whose value the environment, or a file beside the cloud config, could supply instead.
func blameMissing(key, reason string) error {
	return &schema.Problem{Place: "key " + key + " of the cloud config", Reason: reason}
}

// vcenter returns a vCenter with its inherited settings.
func (c *Config) vcenter(key string, own map[string]string, in registry.Inputs) (vcenterConfig, error) {
	at := func(name string) string { return "vcenter." + key + "." + name }
	g := c.Global
	insecure, flagErr := strconv.ParseBool(cmp.Or(own["insecureFlag"], "false"))
	v := vcenterConfig{
		Key: key, Server: cmp.Or(own["server"], key), Port: g.Port, User: g.User, Password: g.Password, Insecure: g.Insecure || insecure,
		CAFile: cmp.Or(own["caFile"], g.CAFile), Thumbprint: cmp.Or(own["thumbprint"], g.Thumbprint), Datacenters: c.raw.Datacenters,
	}
	if own["datacenters"] != "" {
		v.Datacenters = splitList(own["datacenters"])
	}
	var problems []error
	if text := own["port"]; text != "" {
		port, err := strconv.Atoi(text)
		if err != nil || port < 1 || port > 65535 {
			problems = append(problems, schema.BlameKey(at("port"), text, "is not a port"))
		}
		v.Port = port
	}
	if flagErr != nil {
		problems = append(problems, problem(at("insecureFlag"), "is neither true nor false"))
	}
	if err := checkThumbprint(v.Thumbprint); v.Thumbprint != "" && err != nil {
		problems = append(problems, problem(at("thumbprint"), err.Error()))
	}
	if _, err := v.endpoint(in.AllowInsecureEndpoints); err != nil {
		problems = append(problems, schema.BlameKey(at("server"), v.Server, err.Error()))
	}
	problems = append(problems, v.credentials(g, own, at), v.families(c.raw.IPFamily, own["ipFamily"], in, at))
	return v, errors.Join(problems...)
}

// credentials selects the source of user and password: the vCenter's own Secret, the folder, the global Secret, the file.
func (v *vcenterConfig) credentials(g globalConfig, own map[string]string, at func(string) string) error {
	if own["user"] != "" {
		v.User = schema.NewSecret(own["user"])
	}
	if own["password"] != "" {
		v.Password = schema.NewSecret(own["password"])
	}
	switch {
	case own["secretName"] != "":
		v.SecretName, v.SecretNamespace = own["secretName"], cmp.Or(own["secretNamespace"], g.SecretNamespace, defaultSecretNamespace)
	case g.SecretsDirectory != "" && (v.User.IsZero() || g.SecretName != ""):
		v.SecretsDirectory = g.SecretsDirectory
	case g.SecretName != "":
		v.SecretName, v.SecretNamespace = g.SecretName, cmp.Or(g.SecretNamespace, defaultSecretNamespace)
	}
	if v.SecretName != "" || v.SecretsDirectory != "" {
		return nil
	}
	var problems []error
	if v.User.IsZero() {
		problems = append(problems, blameMissing(at("user"), "is required and is not set: set it, or global.user, or secretName"))
	}
	if v.Password.IsZero() {
		problems = append(problems, blameMissing(at("password"), "is required and is not set: set it, or global.password, or secretName"))
	}
	return errors.Join(problems...)
}

func (v *vcenterConfig) families(global []string, own string, in registry.Inputs, at func(string) string) error {
	items := global
	if own != "" {
		items = splitList(own)
	}
	families, err := parseFamilies(items)
	if err != nil {
		return problem(at("ipFamily"), err.Error())
	}
	v.IPFamilies = families
	if len(families) == 0 {
		v.IPFamilies = []v1.IPFamily{v1.IPv4Protocol}
	}
	if len(families) > 1 && !isSet(in, envDualStack) {
		return blameMissing(at("ipFamily"), "has more than one family, which needs the environment variable "+envDualStack)
	}
	return nil
}

// checkUnused warns about settings without effect.
func (c *Config) checkUnused() error {
	var problems []error
	warn := func(set bool, key, reason string) {
		if set {
			problems = append(problems, schema.WarnOfKey(key, reason))
		}
	}
	warn(c.raw.RoundTrips != "", "global.soapRoundtripCount", "has no effect: failed calls are repeated where that is safe")
	warn(c.raw.APIDisable != "", "global.apiDisable", "has no effect: this program does not serve that API")
	warn(c.raw.APIBinding != "", "global.apiBinding", "has no effect: this program does not serve that API")
	zone, region := c.Labels.Zone != "", c.Labels.Region != ""
	warn(zone && !region, "labels.zone", "has no effect without labels.region: nodes get neither zone nor region")
	warn(region && !zone, "labels.region", "has no effect without labels.zone: nodes get neither zone nor region")
	return errors.Join(problems...)
}
