import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Commits a transaction in every partition, then at once aborts one whose records were never sent: as often as asked, each with a
 * producer of its own that commits once more. Prints how many went on, and what stopped the first that did not.
 */
public class EmptyAbort {
    private static final String TOPIC = "empty-abort";
    private static final int PARTITIONS = 50;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        properties.put("linger.ms", "5000");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin.createTopics(List.of(new NewTopic(TOPIC, PARTITIONS, (short) 1))).all().get();
        }
        int rounds = Integer.parseInt(arguments[1]);
        int wentOn = 0;
        String stopped = "";
        for (int round = 0; round < rounds; round++) {
            properties.put("transactional.id", TOPIC + round);
            try (var producer = new KafkaProducer<String, String>(properties)) {
                producer.initTransactions();
                producer.beginTransaction();
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    producer.send(new ProducerRecord<>(TOPIC, partition, "k", "v"));
                }
                producer.commitTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(TOPIC, 0, "k", "never sent"));
                producer.abortTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(TOPIC, 0, "k", "after"));
                producer.commitTransaction();
                wentOn++;
            } catch (Exception error) {
                stopped = stopped.isEmpty() ? error.toString() : stopped;
            }
        }
        System.out.println(wentOn + " of " + rounds + " went on " + stopped);
        Runtime.getRuntime().halt(0);
    }
}
