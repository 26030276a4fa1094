"""Reads the engine at the address of the first argument with the SDK that the project oVirt publishes for Python, and writes what it has
seen as JSON. Its types come from the description of the engine's API, so that they also say which elements are legal."""

import inspect
import io
import json
import sys
import urllib.request

from ovirtsdk4 import Connection, NotFoundError, readers, services, types, xml

address, user, password, name = sys.argv[1:5]


class Watched:
    """An XML reader that notes the elements which the SDK passes over because the API's description does not have them."""

    def __init__(self, text):
        self.reader, self.unknown = xml.XmlReader(io.BytesIO(text)), []

    def __getattr__(self, attribute):
        return getattr(self.reader, attribute)

    def next_element(self):
        self.unknown.append(self.reader.node_name())
        return self.reader.next_element()


def fetch(path, accept, token):
    headers = {"Accept": accept, "Authorization": "Bearer " + token, "Version": "4"}
    with urllib.request.urlopen(urllib.request.Request(address + path, headers=headers)) as answer:
        return answer.read()


def text_of(value):
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def differences(typed, document, path, found):
    """Notes what a document in JSON has that the API's description does not, or that the same document in XML says otherwise."""
    for key, value in document.items():
        place = path + "/" + key
        if key in ("link", "actions", "rel"):
            continue
        if not hasattr(type(typed), key):
            found.append(place + " is unknown")
            continue
        same = getattr(typed, key)
        if isinstance(value, dict):
            inner = [v for v in value.values() if isinstance(v, list)]
            if same is None:
                found += [place + " is nothing in XML"] if value else []
            elif isinstance(same, list):
                for item in inner[0] if inner else []:
                    key_of = "id" if "id" in item else "address"
                    twin = next((i for i in same if getattr(i, key_of, None) == item.get(key_of)), None)
                    if twin is None:
                        found.append(place + " has an item that XML has not")
                    else:
                        differences(twin, item, place, found)
            else:
                differences(same, value, place, found)
        elif isinstance(value, str) and value != "" and text_of(same) != value:
            found.append("%s is %s and %s" % (place, value, same))
        elif isinstance(value, (int, float)) and int(same.timestamp() * 1000) != value:
            found.append("%s is %s and %s" % (place, value, same))


def judged(token):
    unknown, differing = set(), []
    for path, reader, one, item in (
        ("/vms?follow=nics", readers.VmReader, readers.VmReader.read_one, "vm"),
        ("/clusters", readers.ClusterReader, readers.ClusterReader.read_one, "cluster"),
        ("/datacenters", readers.DataCenterReader, readers.DataCenterReader.read_one, "data_center"),
        ("/instancetypes", readers.InstanceTypeReader, readers.InstanceTypeReader.read_one, "instance_type"),
    ):
        watched = Watched(fetch(path, "application/xml", token))
        typed = {o.id: o for o in reader.read_many(watched)}
        unknown.update(item + "/" + e for e in watched.unknown if e not in ("link", "actions"))
        for document in json.loads(fetch(path, "application/json", token)).get(item, []):
            differences(typed.pop(document["id"]), document, item, differing)
        differing += ["%s is in XML alone" % i for i in typed]
    return sorted(unknown), differing


connection = Connection(url=address, username=user, password=password, insecure=True)
connection.test(raise_exception=True)
system = connection.system_service()
vms = system.vms_service()
try:
    vms.vm_service("00000000-0000-0000-0000-00000000dead").get()
    missing = False
except NotFoundError:
    missing = True
unknown, differing = judged(connection.authenticate())
json.dump({
    "Version": system.get().product_info.version.major,
    "Listed": sorted("%s %s %s" % (v.id, v.name, v.status) for v in vms.list()),
    "Searched": [v.name for v in vms.list(search="name=" + name, case_sensitive=False, max=5)],
    "Addresses": [i.address for v in vms.list(search="name=" + name, follow="nics") for n in v.nics for d in n.reported_devices or [] for i in d.ips],
    "Cluster": [c.name for c in system.clusters_service().list()],
    "Statuses": sorted(s.value for s in types.VmStatus),
    "Parameters": sorted(inspect.signature(services.VmsService.list).parameters),
    "Missing": missing, "Unknown": unknown, "Differing": differing,
}, sys.stdout)
connection.close()
