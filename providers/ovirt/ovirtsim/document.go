package ovirtsim

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"slices"
	"strings"
)

// element is a part of a document, from which both of its forms are written: XML, and JSON with the engine's conventions.
type element struct {
	name, id, href, rel string
	text                string
	// number is set for times, the only numbers that JSON has as such: all others are texts.
	number string
	kids   []element
	// items is the name of the items of a collection, which JSON groups under it.
	items string
}

func text(name, value string) element { return element{name: name, text: value} }

func object(name string, kids ...element) element { return element{name: name, kids: kids} }

func collection(name, items string) element { return element{name: name, items: items} }

func link(rel, href string) element { return element{name: "link", rel: rel, href: href} }

// reference is an object of which its address is shown.
func reference(name, kind, id string) element {
	return element{name: name, id: id, href: apiRoot + "/" + kind + "/" + id}
}

// asJSON is the document as a value for JSON.
func (e element) asJSON() any {
	switch {
	case e.items != "":
		if len(e.kids) == 0 {
			return map[string]any{}
		}
		list := []any{}
		for _, k := range e.kids {
			list = append(list, k.asJSON())
		}
		return map[string]any{e.items: list}
	case e.number != "":
		return json.Number(e.number)
	case len(e.kids) == 0 && e.id == "" && e.href == "":
		return e.text
	}
	value := map[string]any{}
	for key, v := range map[string]string{"id": e.id, "href": e.href, "rel": e.rel} {
		if v != "" {
			value[key] = v
		}
	}
	for _, k := range e.kids {
		if k.name == "link" {
			links, _ := value["link"].([]any)
			value["link"] = append(links, k.asJSON())
			continue
		}
		value[k.name] = k.asJSON()
	}
	return value
}

// writeXML writes the document as XML.
func (e element) writeXML(to *bytes.Buffer) {
	to.WriteString("<" + e.name)
	for _, a := range [][2]string{{"href", e.href}, {"id", e.id}, {"rel", e.rel}} {
		if a[1] != "" {
			to.WriteString(" " + a[0] + `="` + escaped(a[1]) + `"`)
		}
	}
	to.WriteString(">" + escaped(e.text))
	for _, k := range e.kids {
		k.writeXML(to)
	}
	to.WriteString("</" + e.name + ">")
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a builder takes everything
	return b.String()
}

// encode returns the document in the form that is asked for, and its content type.
func (e element) encode(inJSON bool) (body []byte, contentType string) {
	var b bytes.Buffer
	if inJSON {
		_ = json.NewEncoder(&b).Encode(e.asJSON()) // it holds nothing that has no JSON
		return b.Bytes(), "application/json"
	}
	b.WriteString(`<?xml version="1.0" encoding="UTF-8" standalone="yes"?>` + "\n")
	e.writeXML(&b)
	return b.Bytes(), "application/xml;charset=UTF-8"
}

// vmDocument is the document of a virtual machine: all that the engine always shows, since its clients rely on that.
func (s *Sim) vmDocument(v *VM, follow string) element {
	address := apiRoot + "/vms/" + v.ID
	e := object("vm",
		object("actions", link("start", address+"/start"), link("stop", address+"/stop")),
		text("name", v.Name), text("description", ""), text("comment", ""),
		link("reporteddevices", address+"/reporteddevices"), link("diskattachments", address+"/diskattachments"),
		object("bios", text("type", "q35_sea_bios")),
		object("cpu", text("architecture", "x86_64"), object("topology", text("cores", "1"), text("sockets", "2"), text("threads", "1"))),
		element{name: "creation_time", text: "2024-05-06T07:08:09.000+02:00", number: "1714972089000"},
		text("delete_protected", "false"),
		object("high_availability", text("enabled", "false"), text("priority", "1")),
		text("memory", "4294967296"),
		object("memory_policy", text("ballooning", "true"), text("guaranteed", "4294967296"), text("max", "17179869184")),
		object("os", text("type", "rhcos_x64")),
		object("placement_policy", text("affinity", "migratable")),
		text("type", "server"),
		reference("cluster", "clusters", v.Cluster), reference("template", "templates", templateID),
	)
	e.id, e.href = v.ID, address
	add := func(k element, shown bool) {
		if shown {
			e.kids = append(e.kids, k)
		}
	}
	add(text("status", v.Status), v.Status != "")
	add(text("status_detail", v.StatusDetail), v.StatusDetail != "")
	add(text("fqdn", v.FQDN), v.FQDN != "" && !v.isOff())
	add(reference("host", "hosts", v.Host), v.Host != "" && !v.isOff() && !s.filtered)
	add(reference("instance_type", "instancetypes", v.InstanceType), v.InstanceType != "")
	for _, part := range []struct {
		name string
		show func() element
	}{{"tags", v.tagsDocument}, {"nics", func() element { return s.nicsDocument(v, true) }}} {
		if slices.Contains(strings.Split(follow, ","), part.name) {
			add(part.show(), true)
		} else {
			add(link(part.name, address+"/"+part.name), true)
		}
	}
	return e
}

func (v *VM) tagsDocument() element {
	tags := collection("tags", "tag")
	for _, t := range v.Tags {
		tags.kids = append(tags.kids, object("tag", text("name", t)))
	}
	return tags
}

func (s *Sim) nicsDocument(v *VM, withDevices bool) element {
	nics := collection("nics", "nic")
	for _, n := range simShuffled(s, v.NICs) {
		address := apiRoot + "/vms/" + v.ID + "/nics/" + n.ID
		nic := object("nic", text("name", n.Name), text("interface", "virtio"), text("linked", "true"), text("plugged", "true"),
			object("mac", text("address", n.MAC)), reference("vm", "vms", v.ID))
		nic.id, nic.href = n.ID, address
		if withDevices {
			nic.kids = append(nic.kids, s.devicesDocument(v, func(d Device) bool { return strings.EqualFold(d.MAC, n.MAC) }))
		}
		nics.kids = append(nics.kids, nic)
	}
	return nics
}

func (s *Sim) devicesDocument(v *VM, chosen func(Device) bool) element {
	devices := collection("reported_devices", "reported_device")
	if v.isOff() {
		return devices
	}
	for _, d := range simShuffled(s, v.Devices) {
		if !chosen(d) {
			continue
		}
		ips := collection("ips", "ip")
		for _, ip := range d.IPs {
			version := "v4"
			if strings.Contains(ip, ":") {
				version = "v6"
			}
			ips.kids = append(ips.kids, object("ip", text("address", ip), text("version", version)))
		}
		id := v.ID[:24] + strings.ReplaceAll(d.MAC, ":", "")
		device := object("reported_device", text("name", d.Name), text("description", "guest reported data"), ips,
			object("mac", text("address", d.MAC)), text("type", "network"), reference("vm", "vms", v.ID))
		device.id, device.href = id, apiRoot+"/vms/"+v.ID+"/reporteddevices/"+id
		devices.kids = append(devices.kids, device)
	}
	return devices
}
