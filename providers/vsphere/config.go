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

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsx"
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
	ini bool
	// unknown are warnings of keys without effect.
	unknown []error
}

const sectionVCenter = "vcenter"

// vcenterKeys are the keys of a section vcenter.<name>.
func vcenterKeys() []string {
	return []string{
		"server", "user", "password", "port", "insecureFlag", "datacenters", "soapRoundtripCount", "caFile", "thumbprint", "secretName",
		"secretNamespace", "ipFamily",
	}
}

// readFile parses either format. A file that begins with a section in brackets is INI; everything else is YAML, so that its faults are
// reported as such.
func readFile(data []byte) (*file, error) {
	f := &file{keys: map[string]string{}, vcenters: map[string]map[string]string{}, classes: map[string]map[string]string{}}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if f.ini = line[0] == '[' || line[0] == ';'; f.ini {
			return f, f.readINI(data)
		}
		return f, f.readYAML(data)
	}
	return f, nil
}

// namedSections returns the sections of a kind by name, and the keys that they may have; nil if sections of that kind have no names.
func (f *file) namedSections(kind string) (sections map[string]map[string]string, keys []string) {
	switch kind {
	case sectionVCenter:
		return f.vcenters, vcenterKeys()
	case nsx.SectionClass:
		return f.classes, nsx.ClassKeys()
	}
	return nil, nil
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
		f.set(sectionOf(e.Section), e.Subsection, camel(e.Key), value, "key "+e.FileKey()+" of the cloud config")
	}
	return nil
}

// sectionOf translates the name of an INI section; an unknown one stays.
func sectionOf(ini string) string {
	return cmp.Or(map[string]string{
		"global": "global", "virtualcenter": sectionVCenter, "labels": "labels", "nodes": "nodes", "loadbalancer": "loadBalancer",
		"loadbalancerclass": nsx.SectionClass, "nsxt": "nsxt", "route": "route",
	}[strings.ToLower(ini)], ini)
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
	if sections, known := f.namedSections(section); sections != nil && name != "" {
		if sections[name] == nil {
			sections[name] = map[string]string{}
		}
		if slices.Contains(known, key) {
			sections[name][key] = value
		} else {
			f.noteUnknown(place, camel(key), known, "; there are "+strings.Join(known, ", "))
		}
		return
	}
	var known []string
	for _, o := range Options {
		if o.FileKey != "" {
			known = append(known, o.FileKey)
		}
	}
	if name == "" && slices.Contains(known, section+"."+key) {
		f.keys[section+"."+key] = value
	} else {
		f.noteUnknown(place, section+"."+camel(key), known, "")
	}
}

// noteUnknown records an unknown key, with the known one that was probably meant, or else with other advice.
func (f *file) noteUnknown(place, name string, known []string, otherwise string) {
	if near := schema.Nearest(name, known); near != "" {
		otherwise = fmt.Sprintf("; did you mean %s?", near)
	}
	f.unknown = append(f.unknown, &schema.Problem{Place: place, Reason: "is unknown and has no effect" + otherwise, Warning: true, InFile: true})
}

// isFlag reports boolean keys, whose values may be words such as yes and no. In other keys these are ordinary texts: there are datacenters
// called NO.
func isFlag(key string) bool {
	return slices.Contains([]string{"insecureFlag", "snatDisabled", "remoteAuth", "apiDisable"}, key)
}

// switchText translates further words for true and false.
func switchText(word string) string {
	switch strings.ToLower(word) {
	case "yes", "on", "y":
		return "true"
	case "no", "off", "n":
		return "false"
	}
	return word
}

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
		sections, _ := f.namedSections(section)
		pairs(content, func(key string, value *yaml.Node, ok bool) {
			switch {
			case !ok:
				problems = append(problems, badYAML(value, section, "must have keys"))
			case sections != nil:
				sections[key] = map[string]string{}
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

// complete adds to the options what the table does not hold: named sections, inheritance, and combined keys.
func (c *Config) complete(f *file, in registry.Inputs) error {
	c.Nodes.InternalCIDRs, _ = parseCIDRs(c.raw.InternalCIDRs)     // the table has refused invalid ones
	c.Nodes.ExternalCIDRs, _ = parseCIDRs(c.raw.ExternalCIDRs)     // as above
	c.Nodes.ExcludeInternal, _ = parseCIDRs(c.raw.ExcludeInternal) // as above
	c.Nodes.ExcludeExternal, _ = parseCIDRs(c.raw.ExcludeExternal) // as above
	c.NodeLabels, _ = parseNodeLabels(c.raw.NodeLabels)            // as above
	c.SkipNodeDeletion = isSet(in, envSkipDeletion)
	c.Global.SecretsDirectory = cmp.Or(c.Global.SecretsDirectory, defaultSecretsDirectory)
	if info, err := os.Stat(c.Global.SecretsDirectory); err != nil || !info.IsDir() {
		c.Global.SecretsDirectory = ""
	}
	f.readEnvironment(in)
	if server := c.Global.Server; server != "" && f.vcenters[server] == nil {
		f.vcenters[server] = map[string]string{"server": server}
	}
	var found faults
	for _, key := range slices.Sorted(maps.Keys(f.vcenters)) {
		own := f.vcenters[key]
		found.addIf(own["server"] == "" && !f.ini, blameKey("vcenter."+key+".server", "is required and is not set: the address of the vCenter"))
		v, err := c.completeVCenter(key, own, in)
		found = append(found, err)
		c.VCenters = append(c.VCenters, v)
	}
	found.addIf(len(c.VCenters) == 0, blameMissing("vcenter", "there is no vCenter: set global.server, or a section vcenter.<name> with server"))
	return errors.Join(append(found, c.AddClasses(f.classes, c.raw.Tags), c.Check(in.AllowInsecureEndpoints))...)
}

// faults collects the problems of the configuration.
type faults []error

// addIf adds a fault on a condition.
func (f *faults) addIf(condition bool, fault error) {
	if condition {
		*f = append(*f, fault)
	}
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

// blameKey returns the fault of a key of the cloud config, without its value.
func blameKey(key, reason string) error { return schema.BlameKey(key, "", reason) }

// blameMissing returns the fault of a key whose value may also come from the environment, or from a file of its own.
func blameMissing(key, reason string) error {
	return &schema.Problem{Place: "key " + key + " of the cloud config", Reason: reason}
}

// completeVCenter returns a vCenter with its own and inherited settings.
func (c *Config) completeVCenter(key string, own map[string]string, in registry.Inputs) (vcenterConfig, error) {
	at := func(name string) string { return "vcenter." + key + "." + name }
	v := vcenterConfig{globalConfig: c.Global, Key: key, Datacenters: c.raw.Datacenters}
	v.Server, v.CAFile, v.Thumbprint = cmp.Or(own["server"], key), cmp.Or(own["caFile"], v.CAFile), cmp.Or(own["thumbprint"], v.Thumbprint)
	if own["datacenters"] != "" {
		v.Datacenters = splitList(own["datacenters"])
	}
	var found faults
	if text := own["port"]; text != "" {
		port, err := strconv.Atoi(text)
		found.addIf(err != nil || port < 1 || port > 65535, schema.BlameKey(at("port"), text, "is not a port"))
		v.Port = port
	}
	insecure, err := strconv.ParseBool(cmp.Or(own["insecureFlag"], "false"))
	found.addIf(err != nil, blameKey(at("insecureFlag"), "is neither true nor false"))
	v.Insecure = v.Insecure || insecure
	if err := checkThumbprint(v.Thumbprint); v.Thumbprint != "" && err != nil {
		found = append(found, blameKey(at("thumbprint"), err.Error()))
	}
	if _, err := v.endpoint(in.AllowInsecureEndpoints); err != nil {
		found = append(found, schema.BlameKey(at("server"), v.Server, err.Error()))
	}
	return v, errors.Join(append(found, v.chooseCredentials(c.Global, own, at), v.chooseFamilies(c.raw.IPFamily, own["ipFamily"], in, at))...)
}

// chooseCredentials selects the source of user and password: the vCenter's own Secret, the folder, the global Secret, the file.
func (v *vcenterConfig) chooseCredentials(g globalConfig, own map[string]string, at func(string) string) error {
	if own["user"] != "" {
		v.User = schema.NewSecret(own["user"])
	}
	if own["password"] != "" {
		v.Password = schema.NewSecret(own["password"])
	}
	v.SecretName, v.SecretNamespace, v.SecretsDirectory = "", "", ""
	switch {
	case own["secretName"] != "":
		v.SecretName, v.SecretNamespace = own["secretName"], cmp.Or(own["secretNamespace"], g.SecretNamespace, defaultSecretNamespace)
	case g.SecretsDirectory != "" && (v.User.IsZero() || g.SecretName != ""):
		v.SecretsDirectory = g.SecretsDirectory
	case g.SecretName != "":
		v.SecretName, v.SecretNamespace = g.SecretName, cmp.Or(g.SecretNamespace, defaultSecretNamespace)
	default:
		var found faults
		found.addIf(v.User.IsZero(), blameMissing(at("user"), "is required and is not set: set it, or global.user, or secretName"))
		found.addIf(v.Password.IsZero(), blameMissing(at("password"), "is required and is not set: set it, or global.password, or secretName"))
		return errors.Join(found...)
	}
	return nil
}

// chooseFamilies sets the families of addresses: the vCenter's own, or the global ones.
func (v *vcenterConfig) chooseFamilies(global []string, own string, in registry.Inputs, at func(string) string) (err error) {
	families := global
	if own != "" {
		families = splitList(own)
	}
	if v.IPFamilies, err = parseFamilies(families); err != nil {
		return blameKey(at("ipFamily"), err.Error())
	}
	if len(v.IPFamilies) > 1 && !isSet(in, envDualStack) {
		return blameMissing(at("ipFamily"), "has more than one family, which needs the environment variable "+envDualStack)
	}
	return nil
}

// checkUnused warns about settings without effect.
func (c *Config) checkUnused() error {
	var found faults
	found.addIf(c.raw.RoundTrips != "", schema.WarnOfKey("global.soapRoundtripCount", "has no effect: failed calls are repeated where that is safe"))
	found.addIf(c.raw.APIDisable != "", schema.WarnOfKey("global.apiDisable", "has no effect: this program does not serve that API"))
	found.addIf(c.raw.APIBinding != "", schema.WarnOfKey("global.apiBinding", "has no effect: this program does not serve that API"))
	zone, region := c.Labels.Zone != "", c.Labels.Region != ""
	found.addIf(zone && !region, schema.WarnOfKey("labels.zone", "has no effect without labels.region: nodes get neither zone nor region"))
	found.addIf(region && !zone, schema.WarnOfKey("labels.region", "has no effect without labels.zone: nodes get neither zone nor region"))
	return errors.Join(found...)
}
