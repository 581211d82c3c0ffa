// Asks Kafka's own StandardAuthorizer. Reads lines from stdin, fields with tabs between them:
//   new ALLOWS SUPER_USERS                                  a new authorizer without entries
//   add ID TYPE PATTERN NAME PRINCIPAL HOST OPERATION PERMISSION
//   remove ID
//   ask PRINCIPAL HOST OPERATION TYPE NAME                  answers one line: true or false
//   any PRINCIPAL HOST OPERATION TYPE                       likewise, for some resource of the type

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class AskAuthorizer {
    static KafkaPrincipal principal(String text) {
        int colon = text.indexOf(':');
        return new KafkaPrincipal(text.substring(0, colon), text.substring(colon + 1));
    }

    static AuthorizableRequestContext context(String principal, String host) throws Exception {
        KafkaPrincipal who = principal(principal);
        InetAddress where = InetAddress.getByName(host);
        return (AuthorizableRequestContext) Proxy.newProxyInstance(
            AskAuthorizer.class.getClassLoader(),
            new Class<?>[] {AuthorizableRequestContext.class},
            (proxy, method, arguments) -> switch (method.getName()) {
                case "principal" -> who;
                case "clientAddress" -> where;
                case "requestType", "requestVersion", "correlationId" -> 0;
                default -> "";
            });
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StandardAuthorizer authorizer = null;
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] field = line.split("\t", -1);
            switch (field[0]) {
                case "new" -> {
                    authorizer = new StandardAuthorizer();
                    Map<String, Object> config = new HashMap<>();
                    config.put("node.id", "1");
                    config.put("allow.everyone.if.no.acl.found", field[1]);
                    config.put("super.users", field[2]);
                    authorizer.configure(config);
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), new LinkedHashMap<>()));
                    authorizer.completeInitialLoad();
                }
                case "add" -> authorizer.addAcl(
                    Uuid.fromString(field[1]),
                    new StandardAcl(
                        ResourceType.fromString(field[2]), field[4], PatternType.fromString(field[3]), field[5], field[6],
                        AclOperation.fromString(field[7]), AclPermissionType.fromString(field[8])));
                case "remove" -> authorizer.removeAcl(Uuid.fromString(field[1]));
                case "ask" -> {
                    ResourcePattern resource =
                        new ResourcePattern(ResourceType.fromString(field[4]), field[5], PatternType.LITERAL);
                    Action action = new Action(AclOperation.fromString(field[3]), resource, 1, false, false);
                    out.append(authorizer.authorize(context(field[1], field[2]), List.of(action)).get(0)
                        == AuthorizationResult.ALLOWED).append('\n');
                }
                default -> out.append(authorizer.authorizeByResourceType(
                        context(field[1], field[2]), AclOperation.fromString(field[3]), ResourceType.fromString(field[4]))
                    == AuthorizationResult.ALLOWED).append('\n');
            }
        }
        System.out.print(out);
    }
}
