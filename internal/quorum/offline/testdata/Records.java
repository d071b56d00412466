import java.util.*;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.types.*;

/**
 * Prints records-4.4.0.txt: the names of all fields, nested ones too, of Kafka's metadata records in their newest versions.
 *
 *   java -cp 'kafka-metadata-4.4.0.jar:kafka-clients-4.4.0.jar:kafka-server-common-4.4.0.jar:jackson…' Records.java
 */
public class Records {
    public static void main(String[] args) throws Exception {
        for (MetadataRecordType t : MetadataRecordType.values()) {
            Object m = t.newMetadataRecord();
            Schema[] schemas = (Schema[]) m.getClass().getField("SCHEMAS").get(null);
            TreeSet<String> names = new TreeSet<>();
            collect(schemas[schemas.length - 1], names);
            System.out.println(t + " " + (schemas.length - 1) + " " + String.join(" ", names));
        }
    }

    static void collect(Type t, Set<String> names) {
        if (t instanceof Schema) for (BoundField f : ((Schema) t).fields()) field(f.def.name, f.def.type, names);
        else if (t.isArray()) collect(t.arrayElementType().get(), names);
    }

    static void field(String name, Type type, Set<String> names) {
        if (type instanceof TaggedFields) {
            for (Field f : ((TaggedFields) type).fields().values()) field(f.name, f.type, names);
            return;
        }
        StringBuilder b = new StringBuilder();
        for (String w : name.split("_")) b.append(b.length() == 0 ? w : w.substring(0, 1).toUpperCase() + w.substring(1));
        names.add(b.toString());
        collect(type, names);
    }
}
