package azuresim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Kinds of resources.
const (
	kindMachine      = "Microsoft.Compute/virtualMachines"
	kindScaleSet     = "Microsoft.Compute/virtualMachineScaleSets"
	kindInstance     = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
	kindSetInterface = "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces"
	kindOneInterface = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces"
	kindSetAddress   = "Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses"
)

const computeVersion = "2025-04-01"

// interfaceVersion is the one by which the network's API shows what belongs to scale sets.
const interfaceVersion = "2018-10-01"

// kind is how resources of a type behave.
type kind struct {
	versions []string
	methods  string
	fields   fields
	// put takes over what was asked, strictly.
	put    func(s *Sim, r *resource, asked object, created bool) *failure
	show   func(s *Sim, r *resource, answer object, view bool)
	remove func(s *Sim, r *resource) *failure
	// list makes a listing of what is no resource by itself.
	list func(s *Sim, parent string) []any
	// putPart and cutPart write and delete what is a part of another resource.
	putPart func(s *Sim, parent *resource, name string, asked object) (created bool, f *failure)
	cutPart func(s *Sim, parent *resource, name string) *failure
}

var kinds map[string]kind //nolint:gochecknoglobals // a table that nobody changes once it is built

func init() { //nolint:gochecknoinits // the table and what it leads to name each other
	kinds = map[string]kind{
		kindMachine: {versions: []string{computeVersion}, methods: "GET PUT DELETE", put: putAny, show: (*Sim).showMachine},
		kindScaleSet: {
			versions: []string{computeVersion}, methods: "GET PUT DELETE", put: (*Sim).putScaleSet, show: showScaleSet, fields: members(
				"timeCreated doNotRunExtensionsOnOverprovisionedVMs orchestrationMode upgradePolicy platformFaultDomainCount singlePlacementGroup overprovision uniqueId").set(
				"virtualMachineProfile", members("timeCreated osProfile storageProfile extensionProfile").set("networkProfile", networkProfile())),
		},
		kindInstance: {
			versions: []string{computeVersion}, methods: "GET PUT DELETE", put: (*Sim).putInstance, show: (*Sim).showInstance,
			fields: members("hardwareProfile osProfile storageProfile networkProfile provisioningState vmId latestModelApplied modelDefinitionApplied timeCreated").set(
				"networkProfileConfiguration", networkProfile()),
		},
		kindSetInterface: {versions: []string{interfaceVersion}, methods: "GET", list: (*Sim).setInterfaces},
		kindOneInterface: {versions: []string{interfaceVersion}, methods: "GET", list: (*Sim).oneInterfaces},
		kindSetAddress:   {versions: []string{interfaceVersion}, methods: "GET", list: (*Sim).setAddresses},
	}
	addNetworkKinds(kinds)
}

func networkProfile() fields {
	config := members("name id privateIPAddressVersion subnet primary publicIPAddressConfiguration loadBalancerBackendAddressPools " +
		"applicationSecurityGroups applicationGatewayBackendAddressPools loadBalancerInboundNatPools")
	card := members("primary enableAcceleratedNetworking disableTcpStateTracking dnsSettings enableIPForwarding networkSecurityGroup deleteOption").set(
		"ipConfigurations", members("name id").set("properties", config))
	return members("networkApiVersion healthProbe").set("networkInterfaceConfigurations", members("name id tags").set("properties", card))
}

// putAny takes over everything.
func putAny(_ *Sim, r *resource, asked object, _ bool) *failure {
	if text(asked, "location") == "" {
		return invalid("LocationRequired", "The location property is required for this definition.")
	}
	for key, value := range asked {
		switch key {
		case "id", "name", "type", "etag":
		default:
			r.doc[key] = value
		}
	}
	return nil
}

// putScaleSet merges as compute does: what is absent stays.
func (s *Sim) putScaleSet(r *resource, asked object, created bool) *failure {
	if created {
		return putAny(s, r, asked, true)
	}
	if !strings.EqualFold(text(asked, "location"), Location) {
		return invalid("LocationRequired", "The location property is required for this definition.")
	}
	profile := follow(asked, "properties", "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations")
	if f := s.checkPools(profile); f != nil {
		return f
	}
	if profile != nil {
		network, _ := follow(r.doc, "properties", "virtualMachineProfile", "networkProfile").(object)
		network["networkInterfaceConfigurations"] = profile
	}
	return nil
}

func (s *Sim) putInstance(r *resource, asked object, created bool) *failure {
	if created {
		if s.resources[strings.ToLower(r.id)] == nil && asked["sim"] == nil {
			return fail(http.StatusNotFound, "InstanceIdNotFound", "The VM instance does not exist.")
		}
		delete(asked, "sim")
		return putAny(s, r, asked, true)
	}
	cards := follow(asked, "properties", "networkProfileConfiguration", "networkInterfaceConfigurations")
	if f := s.checkPools(cards); f != nil {
		return f
	}
	if cards != nil {
		propertiesOf(r.doc)["networkProfileConfiguration"] = object{"networkInterfaceConfigurations": cards}
	}
	return nil
}

// checkPools demands that every pool of network cards exists, and that no configuration is in pools of two load balancers of a kind.
func (s *Sim) checkPools(cards any) *failure {
	list, _ := cards.([]any)
	for _, card := range list {
		for _, config := range items(card, "properties", "ipConfigurations") {
			seen := map[string]string{}
			for _, pool := range items(config, "properties", "loadBalancerBackendAddressPools") {
				lb := s.resources[strings.ToLower(ownerOf(text(pool, "id")))]
				if lb == nil || findByName(items(lb.doc, "properties", "backendAddressPools"), lastOf(text(pool, "id"))) == nil {
					return invalid("InvalidResourceReference", "Resource %s referenced by the network interface was not found.", text(pool, "id"))
				}
				side := strconv.FormatBool(internalOf(lb))
				if other := seen[side]; other != "" && other != lb.id {
					return invalid("NetworkInterfaceUsesMultipleLoadBalancersOfSameType", "Network interface uses multiple load balancers of the same type: %s, %s.", other, lb.id)
				}
				seen[side] = lb.id
				if len(items(findByName(items(lb.doc, "properties", "backendAddressPools"), lastOf(text(pool, "id"))), "properties", "loadBalancerBackendAddresses")) > 0 {
					return invalid("MixedBackendPool", "Backend pool %s has IP-based members.", text(pool, "id"))
				}
			}
		}
	}
	return nil
}

func internalOf(lb *resource) bool {
	for _, f := range items(lb.doc, "properties", "frontendIPConfigurations") {
		if follow(f, "properties", "subnet") != nil {
			return true
		}
	}
	return false
}

// ownerOf is the resource that a part belongs to.
func ownerOf(id string) string {
	parts := strings.Split(id, "/")
	return strings.Join(parts[:max(0, len(parts)-2)], "/")
}

func lastOf(id string) string { return id[strings.LastIndex(id, "/")+1:] }

func instanceView(r *resource) object {
	return object{
		"platformFaultDomain": r.domain, "platformUpdateDomain": r.domain, "statuses": []any{
			object{"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"},
			object{"code": "PowerState/" + r.power, "level": "Info", "displayStatus": "VM " + r.power},
		},
	}
}

func (*Sim) showMachine(r *resource, answer object, view bool) {
	defaults(propertiesOf(answer), object{"vmId": guid(12), "timeCreated": r.created.UTC().Format(time.RFC3339)})
	if view {
		propertiesOf(answer)["instanceView"] = instanceView(r)
	}
}

func (*Sim) showInstance(r *resource, answer object, view bool) {
	set := ownerOf(r.id)
	answer["name"] = lastOf(set) + "_" + r.name()
	answer["instanceId"] = r.name()
	defaults(propertiesOf(answer), object{"modelDefinitionApplied": "VirtualMachineScaleSet"})
	showCards(items(answer, "properties", "networkProfileConfiguration", "networkInterfaceConfigurations"))
	if view {
		propertiesOf(answer)["instanceView"] = instanceView(r)
	}
}

func computerName(r *resource) string { return text(r.doc, "properties", "osProfile", "computerName") }

// providerID is that of an instance, as a new Node gets it.
func providerID(id string) string {
	return "azure://" + strings.Replace(id, "/resourceGroups/"+Group+"/", "/resourceGroups/"+strings.ToLower(Group)+"/", 1)
}

// AddScaleSet adds a scale set without instances.
func (s *Sim) AddScaleSet(name, mode, prefix string, zones []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if prefix == "" {
		prefix = name
	}
	doc := object{
		"location": Location, "sku": object{"name": "Standard_D2s_v5", "tier": "Standard", "capacity": 0}, "properties": object{
			"orchestrationMode": mode, "virtualMachineProfile": object{
				"osProfile": object{"computerNamePrefix": prefix}, "networkProfile": object{"networkInterfaceConfigurations": []any{card("", "")}},
			},
		},
	}
	for _, z := range zones {
		list, _ := doc["zones"].([]any)
		doc["zones"] = append(list, z)
	}
	s.put(ID(kindScaleSet, name), doc)
}

// card is the configuration of a network card.
func card(_, _ string) object {
	subnet := object{"id": ID("Microsoft.Network/virtualNetworks", Network, "subnets", Subnet)}
	made := object{"name": "nic", "properties": object{"primary": true, "enableIPForwarding": true, "ipConfigurations": []any{
		object{"name": "ipconfig4", "properties": object{"primary": true, "privateIPAddressVersion": "IPv4", "subnet": subnet}},
		object{"name": "ipconfig6", "properties": object{"primary": false, "privateIPAddressVersion": "IPv6", "subnet": subnet}},
	}}}
	showCards([]object{made}) // a scale set has what the API filled in when it was made
	return made
}

// AddInstance adds an instance to the usual scale set and returns its provider ID.
func (s *Sim) AddInstance(name string) string {
	return simkit.Get(&s.mu, func() string { return providerID(s.addInstance(ScaleSet, name)) })
}

// AddInstanceTo adds an instance to a scale set of either mode and returns its provider ID.
func (s *Sim) AddInstanceTo(set, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text(s.resources[strings.ToLower(ID(kindScaleSet, set))].doc, "properties", "orchestrationMode") == "Flexible" {
		return providerID(s.addMachine(set+"_"+name, name, set, nil))
	}
	return providerID(s.addInstance(set, name))
}

// ScaleOut adds machines to a uniform scale set under the names that Azure gives them, and returns these: its prefix and six characters.
func (s *Sim) ScaleOut(set string, n int) (names []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	model := s.resources[strings.ToLower(ID(kindScaleSet, set))]
	if model == nil || text(model.doc, "properties", "orchestrationMode") != "Uniform" {
		return nil, fmt.Errorf("there is no uniform scale set %s", set)
	}
	prefix := text(model.doc, "properties", "virtualMachineProfile", "osProfile", "computerNamePrefix")
	for range n {
		name := fmt.Sprintf("%s%06s", prefix, strconv.FormatInt(int64(s.number+1), 36)) // the number that the machine gets
		s.addInstance(set, name)
		names = append(names, name)
	}
	return names, nil
}

func (s *Sim) addInstance(set, name string) string {
	s.number++
	model := s.resources[strings.ToLower(ID(kindScaleSet, set))]
	cards := clone(follow(model.doc, "properties", "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations"))
	number := strconv.Itoa(s.number)
	id := ID(kindScaleSet, set, "virtualMachines", number)
	doc := object{
		"location": Location, "sim": true, "sku": object{"name": "Standard_D2s_v5", "tier": "Standard"}, "properties": object{
			"vmId": guid(s.number), "latestModelApplied": true, "timeCreated": time.Now().UTC().Format(time.RFC3339),
			"hardwareProfile": object{"vmSize": "Standard_D2s_v5"}, "osProfile": object{"computerName": name},
			"networkProfile":              object{"networkInterfaces": []any{object{"id": id + "/networkInterfaces/nic"}}},
			"networkProfileConfiguration": object{"networkInterfaceConfigurations": cards},
		},
	}
	if zones := strs(model.doc, "zones"); len(zones) > 0 {
		doc["zones"] = []any{zones[s.number%len(zones)]}
	}
	s.put(id, doc).domain = s.number % 5
	return id
}

// AddMachine adds a virtual machine that stands alone and returns its provider ID.
func (s *Sim) AddMachine(name string, zones ...any) string {
	return simkit.Get(&s.mu, func() string { return providerID(s.addMachine(name, name, "", zones)) })
}

// AddMachineTo adds a virtual machine to another resource group and returns its provider ID.
func (s *Sim) AddMachineTo(group, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.addMachine(name, name, "", []any{"1"})
	for _, moved := range []string{id, ID(kindInterface, name+"-nic")} {
		r := s.resources[strings.ToLower(moved)]
		s.drop(moved)
		r.id = strings.Replace(r.id, Group, group, 1)
		r.doc = withRenamedField(r.doc, "/"+Group+"/", "/"+group+"/")
		s.store(r)
	}
	return "azure://" + strings.Replace(id, Group, group, 1)
}

// GivePublicAddress gives an instance of a uniform scale set a public address.
func (s *Sim) GivePublicAddress(providerID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range items(s.resources[idOf(providerID)].doc, "properties", "networkProfileConfiguration", "networkInterfaceConfigurations") {
		propertiesOf(items(c, "properties", "ipConfigurations")[0])["publicIPAddressConfiguration"] = object{"name": "public"}
	}
}

func (s *Sim) addMachine(machine, name, set string, zones []any) string {
	s.number++
	n := s.number
	subnet := object{"id": ID("Microsoft.Network/virtualNetworks", Network, "subnets", Subnet)}
	id, nic := ID(kindMachine, machine), ID(kindInterface, machine+"-nic")
	s.put(nic, object{"location": Location, "properties": object{
		"virtualMachine": object{"id": id}, "primary": true, "ipConfigurations": []any{
			object{"name": "ipconfig4", "properties": object{
				"primary": true, "privateIPAddressVersion": "IPv4", "subnet": subnet, "privateIPAllocationMethod": "Dynamic", "privateIPAddress": address4(n),
			}},
			object{"name": "ipconfig6", "properties": object{
				"primary": false, "privateIPAddressVersion": "IPv6", "subnet": subnet, "privateIPAllocationMethod": "Dynamic", "privateIPAddress": address6(n),
			}},
		},
	}})
	doc := object{"location": Location, "properties": object{
		"vmId": guid(n), "timeCreated": time.Now().UTC().Format(time.RFC3339), "hardwareProfile": object{"vmSize": "Standard_D2s_v5"},
		"osProfile": object{"computerName": name}, "networkProfile": object{"networkInterfaces": []any{object{"id": nic, "properties": object{"primary": true}}}},
	}}
	if zones != nil {
		doc["zones"] = zones
	}
	if set != "" {
		propertiesOf(doc)["virtualMachineScaleSet"] = object{"id": ID(kindScaleSet, set)}
	}
	s.put(id, doc).domain = n % 5
	return id
}

func address4(n int) string { return fmt.Sprintf("10.240.%d.%d", n/250, n%250+4) }
func address6(n int) string { return fmt.Sprintf("fd00:10:240::%x", n+4) }

// idOf is the resource of a provider ID.
func idOf(providerID string) string {
	return strings.ToLower(strings.TrimPrefix(providerID, "azure://"))
}

// RemoveByID destroys an instance, and what belongs to it.
func (s *Sim) RemoveByID(providerID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[idOf(providerID)]
	if r == nil {
		return fmt.Errorf("there is no instance %s", providerID)
	}
	s.drop(r.id)
	for _, nic := range items(r.doc, "properties", "networkProfile", "networkInterfaces") {
		s.drop(text(nic, "id"))
	}
	return nil
}

// Detach destroys a machine that stands alone, and leaves its network interface, as Azure does by itself.
func (s *Sim) Detach(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(propertiesOf(s.resources[strings.ToLower(ID(kindInterface, name+"-nic"))].doc), "virtualMachine")
	s.drop(ID(kindMachine, name))
}

// RemoveInstances destroys all instances.
func (s *Sim) RemoveInstances() {
	for _, i := range s.Instances() {
		_ = s.RemoveByID(i.ProviderID) // it is there
	}
}

// SetPower changes the power state of an instance.
func (s *Sim) SetPower(providerID, power string) error {
	return s.alter(providerID, func(r *resource) { r.power = power })
}

// SetSize changes the size of an instance.
func (s *Sim) SetSize(providerID, size string) error {
	return s.alter(providerID, func(r *resource) {
		propertiesOf(r.doc)["hardwareProfile"] = object{"vmSize": size}
		if sku, ok := r.doc["sku"].(object); ok { // of an instance of a scale set
			sku["name"] = size
		}
	})
}

// SetTags replaces the tags of an instance.
func (s *Sim) SetTags(providerID string, tags map[string]string) error {
	return s.alter(providerID, func(r *resource) {
		shown := object{}
		for key, value := range tags {
			shown[key] = value
		}
		r.doc["tags"] = shown
	})
}

// alter changes a resource behind the API's back.
func (s *Sim) alter(id string, change func(*resource)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[idOf(id)]
	if r == nil {
		return fmt.Errorf("there is no resource %s", id)
	}
	change(r)
	s.number++
	r.etag = s.number
	return nil
}

// setInterfaces lists the network interfaces of all instances of a scale set.
func (s *Sim) setInterfaces(parent string) []any {
	var list []any
	for _, r := range s.all(kindInstance) {
		if strings.HasPrefix(strings.ToLower(r.id), parent+"/") {
			list = append(list, anyOf(s.interfacesOf(r))...)
		}
	}
	return list
}

func (s *Sim) oneInterfaces(parent string) []any { return anyOf(s.interfacesOf(s.resources[parent])) }

func (s *Sim) interfacesOf(r *resource) []object {
	number, _ := strconv.Atoi(r.name())
	var list []object
	for i, c := range items(r.doc, "properties", "networkProfileConfiguration", "networkInterfaceConfigurations") {
		id := r.id + "/networkInterfaces/" + text(c, "name")
		var configs []any
		for _, config := range items(c, "properties", "ipConfigurations") {
			props := clone(propertiesOf(config))
			props["privateIPAllocationMethod"], props["provisioningState"] = "Dynamic", "Succeeded"
			props["privateIPAddress"] = address4(number + 1000*i)
			if text(props, "privateIPAddressVersion") == "IPv6" {
				props["privateIPAddress"] = address6(number + 1000*i)
			}
			if s.hasPublic(r, c, config) {
				props["publicIPAddress"] = object{"id": id + "/ipConfigurations/" + text(config, "name") + "/publicIPAddresses/public"}
			}
			delete(props, "publicIPAddressConfiguration")
			configs = append(configs, object{"name": config["name"], "id": id + "/ipConfigurations/" + text(config, "name"), "properties": props})
		}
		list = append(list, object{"name": c["name"], "id": id, "properties": object{
			"provisioningState": "Succeeded", "primary": follow(c, "properties", "primary"), "virtualMachine": object{"id": r.id}, "ipConfigurations": configs,
		}})
	}
	return list
}

func (*Sim) hasPublic(_ *resource, _, config object) bool {
	return follow(config, "properties", "publicIPAddressConfiguration") != nil
}

func (s *Sim) setAddresses(parent string) []any {
	var list []any
	for _, nic := range s.setInterfaces(parent) {
		for _, config := range items(nic, "properties", "ipConfigurations") {
			if id := text(config, "properties", "publicIPAddress", "id"); id != "" {
				private := strings.Split(text(config, "properties", "privateIPAddress"), ".")
				list = append(list, object{"name": "public", "id": id, "properties": object{
					"ipAddress": "198.51.100." + private[len(private)-1], "publicIPAddressVersion": "IPv4", "ipConfiguration": object{"id": config["id"]},
				}})
			}
		}
	}
	return list
}

// members counts the members of a load balancer's pools. Azure shows one by its interface as an address as well.
func (s *Sim) members(lb *resource) int {
	count := 0
	for _, pool := range items(s.show(lb, false), "properties", "backendAddressPools") {
		count += max(
			len(items(pool, "properties", "backendIPConfigurations")), len(items(pool, "properties", "loadBalancerBackendAddresses")),
		)
	}
	return count
}

// memberConfigs are the IDs of IP configurations that are in a pool.
func (s *Sim) memberConfigs(pool string) []string {
	var ids []string
	visit := func(nic object) {
		for _, config := range items(nic, "properties", "ipConfigurations") {
			for _, p := range items(config, "properties", "loadBalancerBackendAddressPools") {
				if strings.EqualFold(text(p, "id"), pool) {
					id := text(config, "id")
					if id == "" {
						id = text(nic, "id") + "/ipConfigurations/" + text(config, "name")
					}
					ids = append(ids, strings.Replace(id, "/resourceGroups/"+Group+"/", "/resourceGroups/"+strings.ToLower(Group)+"/", 1))
				}
			}
		}
	}
	for _, r := range s.all(kindInstance) {
		for _, nic := range s.interfacesOf(r) {
			visit(nic)
		}
	}
	for _, r := range s.all(kindInterface) {
		nic := clone(r.doc)
		nic["id"] = r.id
		visit(nic)
	}
	slices.Sort(ids)
	return ids
}
